"""Worked solutions as steps: where a hint may end, and where it shows the answer."""
