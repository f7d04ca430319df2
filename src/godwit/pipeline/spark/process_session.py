"""A Spark session that lasts as long as its process: for notebooks, where no block ends it."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from godwit.pipeline.spark.session import spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_opening: Final = threading.Lock()


def process_session(name: str, *, master: str, settings: Mapping[str, str]) -> SparkSession:
    """Return the session of this process; the first call opens it."""
    with _opening:
        found = _active()
        if found is not None:
            return found
        # A kernel need not be activated: `python3` on its path is another one, without our packages.
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        until_the_end = ExitStack()
        session = until_the_end.enter_context(spark_session(name, master=master, settings=settings, lasting=True))
        atexit.register(until_the_end.close)
        return session


def _active() -> SparkSession | None:
    """Return the session that this process has already."""
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:  # noqa: SLF001 # there is no public question
        return None
    return SparkSession.builder.getOrCreate()
