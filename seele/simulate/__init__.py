"""Simulation of hint controllers on problems with known accuracy curves, to evaluate them without a GPU."""
