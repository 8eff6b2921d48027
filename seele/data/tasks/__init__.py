"""Tasks whose problems and worked solutions are made here, or read line by line."""
