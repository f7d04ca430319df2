"""A driver that writes a table to a queue, to be killed: `python -m tests.pipeline.sink_driver URL ROWS PARTS`."""

from __future__ import annotations

import sys

from pyspark.sql import functions as F  # noqa: N812 - the name it goes by in all examples

from godwit.pipeline.spark.session import spark_session
from tests.pipeline.drivers import release


def main() -> None:
    url, rows, parts = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Tasks may fail often: a fifth of their blocks kill the Python process that sends them.
    release()
    with spark_session("sinker", master="local[2,100]") as spark:
        table = spark.range(0, rows, 1, parts).select(
            F.col("id").cast("string").alias("key"),
            F.to_json(F.struct(F.col("id").alias("n"))).alias("payload"),
        )
        table.write.format("godwit").mode("append").options(url=url, queue="orders", runId="storm").save()


if __name__ == "__main__":
    main()
