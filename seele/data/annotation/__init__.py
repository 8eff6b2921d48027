"""Worked solutions and hints from an annotator: requests, cost, ledger, parsing of replies, report."""
