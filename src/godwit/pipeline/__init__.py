"""The data pipeline on Spark: the journal as a table, and the results computed from it.

Packages, in the order of the data:

    spark        Spark's session, JVM, errors and metrics; the broker and the store of a job
    source       journals as tables: `spark.read.format("godwit")` and the stream
    sink         rows as messages: `df.write.format("godwit")`, each message once
    batch        a batch of the journal: its parts, published once in one transaction
    lake         Parquet files behind a manifest
    audit        copies followed from arrival to end, carried from batch to batch
    campaign     messages planned for users in every time zone
    report       figures, advice and plots about a period
    query        conditions and the whole history as one table
    transforms   pure functions from DataFrame to DataFrame
    jobs         one thin job per command of `godwit.cli.pipelines`

Transforms know no path, URL, clock or session, so that three rows are enough to test one. Input and output belong to
the other packages. Jobs open a session, read, call transforms, write, and return what they did.

Code that runs in Spark's Python workers (`source`, `sink`, functions passed to `mapInArrow`) imports only packages that
are installed there: workers see `godwit` and `pyspark_godwit`, and no module of the driver.

Exactly once is a position in the store, compared and set in one transaction together with everything a batch writes;
Spark's checkpoint only hints where to continue. No job keeps Spark state or a watermark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    name: str = "notebook", *, master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a Spark session for a notebook or a script, set up as the pipeline's own: quiet, times in UTC.

    Called again it returns the same session, or one that the process had before. It ends with the process.
    """
    from godwit.pipeline.spark.process_session import process_session

    return process_session(name, master=master, settings=settings or {})
