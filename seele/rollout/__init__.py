"""The rounds of one problem, written against protocols, independent of an engine."""
