"""``seele doctor``: ``gather`` collects facts, ``judge`` makes findings of them, ``command`` prints."""
