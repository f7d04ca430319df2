"""Spark's Java classes, kept ready: a JVM that finds them starts with half the work.

`python -m godwit.pipeline.spark.class_archive` starts Spark once and keeps the classes it loaded in an archive beside
pyspark, from where every later JVM maps them. The archive is named after the Java that made it; another Java, or
other jars, is noticed by Java itself, which then loads its classes as if there were none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from godwit.pipeline.spark.jvm import find_java, start
from godwit.pipeline.spark.run_folder import run_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAKE_SECONDS: Final = 240.0
"""How long a JVM may take to write its classes down; it takes ten to twenty on a quiet machine."""
_TRAINING: Final = "select id, id % 7 as kind, cast(id as string) as word from range(100)"


def archive_path() -> Path | None:
    """Return where the classes for this Java are kept; None without a Java."""
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    if java is None or not Path(java).exists():
        return None
    place = Path(java).resolve()
    told = f"{place} {place.stat().st_mtime_ns}"
    return Path(_find_spark_home()) / f"godwit-{hashlib.sha256(told.encode()).hexdigest()[:12]}.jsa"


def archive_options() -> tuple[str, ...]:
    """Return what a JVM of Spark is told so that it uses the archive, if there is one."""
    place = archive_path()
    return (f"-XX:SharedArchiveFile={place}",) if place is not None and place.exists() else ()


def make_archive() -> Path:
    """Make the archive unless it is there; whoever comes meanwhile waits."""
    from godwit.pipeline.spark.session import check_java

    check_java()
    place = archive_path()
    assert place is not None  # noqa: S101 # checked
    lock = os.open(place.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            part = place.with_suffix(".part")
            _trained(part)
            part.replace(place)
    finally:
        os.close(lock)
    return place


def _trained(part: Path) -> None:
    """Let a JVM do a little of what jobs do, and write down the classes it loaded at its end."""
    from godwit.pipeline.spark.session import JVM_OPTIONS, configuration, session_in

    with run_folder() as folder:
        conf = configuration("classes", "local[1]", folder, {}, "error")
        conf["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={part}"
        jvm = start(conf, folder, options=" ".join(JVM_OPTIONS))
        try:
            with session_in(conf, jvm, folder) as spark:
                _train(spark, folder)
        finally:
            jvm.end(MAKE_SECONDS)


def _train(spark: SparkSession, folder: Path) -> None:
    """Write, read and stream a few rows."""
    place = str(folder / "rows")
    spark.sql(_TRAINING).write.partitionBy("kind").parquet(place)
    rows = spark.read.parquet(place)
    rows.join(rows.groupBy("kind").count(), "kind").orderBy("id").toArrow()
    stream = spark.readStream.schema(rows.schema).parquet(place).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(int(MAKE_SECONDS))


if __name__ == "__main__":
    sys.stdout.write(f"{make_archive()}\n")
