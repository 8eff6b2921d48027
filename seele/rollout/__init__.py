"""The rounds of one problem, over protocols: no engine is named here."""
