"""Problems with worked solutions: where they come from, and the parquet files that hold them."""
