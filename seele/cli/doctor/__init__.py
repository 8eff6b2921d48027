"""``seele doctor``: ``gather`` collects facts, ``judge`` turns them into findings, ``command`` prints."""
