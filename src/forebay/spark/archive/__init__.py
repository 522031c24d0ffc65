"""The archive: messages and their outcomes as Parquet, before retention drops them."""
