"""Hint controllers against problems whose accuracy curves are known: their worth before a GPU runs."""
