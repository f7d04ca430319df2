"""An archive of Spark's Java classes, beside pyspark: the JVMs of the tests start with half the processor time.

The archive is named after the Java that made it. Java itself notices when Java or the jars have changed, and then loads
its classes without the archive.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from godwit.pipeline.spark.jvm import find_java, start_jvm
from godwit.pipeline.spark.run_folder import run_folder
from godwit.pipeline.spark.session import JVM_OPTIONS, check_java, configuration, session_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAKE_SECONDS: Final = 240.0
"""How long a JVM may take to write its classes; ten to twenty seconds on a quiet machine."""
_SAMPLE_QUERY: Final = "select id, id % 7 as kind, cast(id as string) as word from range(100)"


def archive_option() -> str:
    """Return the JVM option that uses the archive, which is made unless it exists; concurrent calls wait for it."""
    check_java()
    binary = Path(find_java() or "").resolve()
    identity = f"{binary} {binary.stat().st_mtime_ns}"
    path = Path(pyspark.__file__).parent / f"godwit-{hashlib.sha256(identity.encode()).hexdigest()[:12]}.jsa"
    lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            part = path.with_suffix(".part")
            _write_classes(part)
            part.replace(path)
    finally:
        os.close(lock)
    return f"-XX:SharedArchiveFile={path}"


def _write_classes(part: Path) -> None:
    """Run a JVM through a small job and have it write the classes it loaded to `part`."""
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
