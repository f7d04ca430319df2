"""The lake: Parquet files that count once a manifest lists them.

Modules:

    files          writes and reads the files of a lake
    maintenance    compacts small files and sweeps files that stopped counting
"""
