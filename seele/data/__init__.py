"""Problems with worked solutions: their sources, and the parquet files that hold them."""
