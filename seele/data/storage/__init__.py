"""Files of problems: parquet rows, their rules, and files that are complete or absent."""
