"""Parquet files that count once a manifest lists them."""
