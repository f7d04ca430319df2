"""An archive of Spark's Java classes: a JVM that finds it starts with half the work.

`python -m godwit.pipeline.spark.class_archive` starts Spark once and writes the classes it loaded to an archive beside
pyspark, from where every later JVM maps them. The archive is named after the Java that made it. Java itself notices
when Java or the jars have changed, and then loads its classes without the archive.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from godwit.pipeline.spark.jvm import find_java, start_jvm
from godwit.pipeline.spark.run_folder import run_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAKE_SECONDS: Final = 240.0
"""How long a JVM may take to write its classes; ten to twenty seconds on a quiet machine."""
_SAMPLE_QUERY: Final = "select id, id % 7 as kind, cast(id as string) as word from range(100)"


def archive_path() -> Path | None:
    """Return the path of the archive for this Java; None without a Java."""
    from pyspark.find_spark_home import _find_spark_home

    java = find_java()
    if java is None or not Path(java).exists():
        return None
    binary = Path(java).resolve()
    identity = f"{binary} {binary.stat().st_mtime_ns}"
    return Path(_find_spark_home()) / f"godwit-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"


def archive_options() -> tuple[str, ...]:
    """Return the JVM options that use the archive; none when there is no archive."""
    path = archive_path()
    return (f"-XX:SharedArchiveFile={path}",) if path is not None and path.exists() else ()


def make_archive() -> Path:
    """Make the archive unless it exists; concurrent calls wait for the first one."""
    from godwit.pipeline.spark.session import check_java

    check_java()
    path = archive_path()
    assert path is not None  # noqa: S101 # checked
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(".part")
            _write_classes(part)
            part.replace(path)
    finally:
        os.close(lock)
    return path


def _write_classes(part: Path) -> None:
    """Run a JVM through a small job and have it write the classes it loaded to `part`."""
    from godwit.pipeline.spark.session import JVM_OPTIONS, configuration, session_in

    with run_folder() as folder:
        conf = configuration("classes", "local[1]", folder, {}, "error")
        conf["spark.driver.extraJavaOptions"] += f" -XX:ArchiveClassesAtExit={part}"
        jvm = start_jvm(conf, folder, options=" ".join(JVM_OPTIONS))
        try:
            with session_in(conf, jvm, folder) as spark:
                _run_sample_job(spark, folder)
        finally:
            jvm.end(MAKE_SECONDS)


def _run_sample_job(spark: SparkSession, folder: Path) -> None:
    """Write, read and stream a few rows."""
    table_path = str(folder / "rows")
    spark.sql(_SAMPLE_QUERY).write.partitionBy("kind").parquet(table_path)
    rows = spark.read.parquet(table_path)
    rows.join(rows.groupBy("kind").count(), "kind").orderBy("id").toArrow()
    stream = spark.readStream.schema(rows.schema).parquet(table_path).writeStream.format("noop")
    query = stream.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination(int(MAKE_SECONDS))


if __name__ == "__main__":
    sys.stdout.write(f"{make_archive()}\n")
