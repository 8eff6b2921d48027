"""Tasks whose problems and worked solutions are generated here, or read line by line."""
