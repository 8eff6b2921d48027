"""Storage of problems: parquet rows, their rules, and files that are either complete or absent."""
