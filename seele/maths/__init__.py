"""Pure functions on numbers and arrays: the formulas of the paper, without engine, files or state."""
