"""Worked solutions from an annotator: asking, cost, ledger, reading of replies, report."""
