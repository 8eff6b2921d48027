"""Worked solutions and hints from an annotator: asking, cost, ledger, reading of replies, report."""
