"""Worked solutions as steps: where a hint may end, and where it reveals the answer."""
