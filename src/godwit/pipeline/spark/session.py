"""Spark sessions: started quietly in a run folder of their own, ended with their JVM.

A session keeps everything Spark writes on the side (`spark.local.dir`, `java.io.tmpdir`, the warehouse, the JVM's log)
in its run folder. The folder is removed with the session; the folder of a killed driver is removed when the next
session starts. The JVM ends with the session, and when its driver is killed, because it reads the end of its standard
input.
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from godwit.core.errors import ExtraRequired, JavaRequired, SparkUnavailable
from godwit.pipeline.spark.cores import cores
from godwit.pipeline.spark.jvm import STOP_SECONDS, Jvm, find_java, finishes_within, log_tail, start_jvm
from godwit.pipeline.spark.run_folder import run_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
LEAST_JAVA: Final = 17
QUICK: Final = "-XX:TieredStopAtLevel=1"
"""Compiles fast and once, which suits jobs of seconds; longer jobs take the time for faster code."""
JVM_OPTIONS: Final = (
    "-XX:+UseSerialGC",  # one heap, two cores: parallel collectors only add threads
    QUICK,
    "-XX:-UsePerfData",  # no files in /tmp
    "-Xshare:auto",
    "-Darrow.enable_unsafe_memory_access=true",  # the bounds of every value are known when its batch is read
    "-Darrow.enable_null_check_for_get=false",  # Spark asks whether a value is null before it takes it
    "-Duser.timezone=UTC",
)
SMALL: Final = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings for a few thousand rows: whatever prepares for more takes longer than it saves."""
LOGGING: Final = """\
status = error
rootLogger.level = {level}
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
appender.err.layout.pattern = %d{{ISO8601}} %p %c{{1}}: %m%n%ex
"""


@contextmanager
def spark_session(
    name: str,
    *,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    log_level: str = "error",
    lasting: bool = False,
) -> Iterator[SparkSession]:
    """Start Spark for one job; stop it, its JVM and its temporary files when the block ends.

    `settings` are Spark's own and win over Godwit's; `lasting` is for jobs of more than a minute or two. Spark allows
    one session per process.
    """
    check_java()
    with run_folder() as folder:
        try:
            # First, because it takes environment variables that only an installed pyspark can use.
            from pyspark import SparkContext
        except ImportError as error:
            raise ExtraRequired("The pipeline", "spark") from error
        if SparkContext._active_spark_context is not None:  # noqa: SLF001 # there is no public question
            raise SparkUnavailable("this process has a session already", "End it first, or use that one.")
        conf = configuration(name, master, folder, settings or {}, log_level, lasting=lasting)
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # pyspark asks here for the workers of its functions
        jvm = start_jvm(conf, folder, options=" ".join(JVM_OPTIONS))
        try:
            with session_in(conf, jvm, folder) as session:
                yield session
        finally:
            jvm.end()


@contextmanager
def session_in(conf: Mapping[str, str], jvm: Jvm, folder: Path) -> Iterator[SparkSession]:
    """Open a session in a running JVM and stop it when the block ends; the JVM keeps running."""
    with _silence_py4j():
        gateway = jvm.connect()
        try:
            yield _connect(conf, gateway, folder)
        finally:
            _end(jvm, gateway)


@contextmanager
def _silence_py4j() -> Iterator[None]:
    """Silence py4j's log: its errors are raised as well, and the command reports a Ctrl-C itself."""
    root, own = logging.getLogger(), logging.getLogger("py4j")
    level = own.level
    own.setLevel(logging.CRITICAL)
    root.addFilter(_is_no_interrupt)
    try:
        yield
    finally:
        root.removeFilter(_is_no_interrupt)
        own.setLevel(level)


def _is_no_interrupt(record: logging.LogRecord) -> bool:
    return record.exc_info is None or record.exc_info[0] is not KeyboardInterrupt


def run_folder_of(spark: SparkSession) -> Path:
    """Return the run folder of a session."""
    return Path(spark.conf.get("spark.local.dir") or tempfile.gettempdir()).parent


def check_java() -> None:
    """Refuse to start without a Java that Spark can use."""
    java = find_java()
    if java is None or not os.access(java, os.X_OK):
        raise JavaRequired("none was found" if java is None else f"JAVA_HOME has none ({java})", LEAST_JAVA)
    answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)  # noqa: S603
    output = answer.stderr
    version = re.search(r'version "(?:1\.)?(\d+)', output)
    if version is None or int(version[1]) < LEAST_JAVA:
        raise JavaRequired(f"{java} is version {version[1] if version else 'unknown'}", LEAST_JAVA)


def configuration(
    name: str, master: str, folder: Path, settings: Mapping[str, str], log_level: str, *, lasting: bool = False
) -> dict[str, str]:
    """Return Spark's configuration: Godwit's settings, overridden by those of the caller."""
    log_settings = folder / "log4j2.properties"
    log_settings.write_text(LOGGING.format(level=log_level), encoding="utf-8")
    chosen = [option for option in JVM_OPTIONS if option != QUICK or not lasting]
    options = (
        *chosen,
        f"-Djava.io.tmpdir={folder}",
        f"-Dlog4j2.configurationFile={log_settings.as_uri()}",
    )
    ours = {
        "spark.app.name": name,
        "spark.master": master,
        "spark.driver.extraJavaOptions": " ".join(options),
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stopTimeout": f"{STOP_SECONDS:.0f}s",  # without it a query that hangs is never stopped
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if master.startswith("local"):
        ours |= {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "2g",
            "spark.sql.shuffle.partitions": str(_cores(master)),
        }
    return ours | dict(settings)


def _cores(master: str) -> int:
    """Return how many tasks a local master runs at once, which is also the number of shuffle partitions."""
    match = re.match(r"local\[(\d+)", master)
    return int(match[1]) if match else cores() if "*" in master else 1


def _connect(conf: Mapping[str, str], gateway: Any, folder: Path) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    try:
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    except Py4JError as error:
        log = log_tail(folder / "jvm.log")
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise SparkUnavailable(f"{reason}\n{log}".strip(), "Check --master and what Spark says above.") from error
    return SparkSession(context)


def _end(jvm: Jvm, gateway: Any) -> None:
    """Stop the context; kill a JVM that does not answer within `STOP_SECONDS`."""
    from py4j.protocol import Py4JError
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession or SparkContext._active_spark_context  # noqa: SLF001 # the thread's is another

    def stop() -> None:
        with suppress(Py4JError, OSError, RuntimeWarning):
            if session is not None:
                session.stop()
        with suppress(Py4JError, OSError):
            # A JVM of spark-submit goes on listening until its Python has ended.
            gateway.close() if jvm.process is None else gateway.shutdown()

    if not finishes_within(STOP_SECONDS, stop):
        jvm.kill()
    # The next session of this process needs a JVM of its own.
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None  # noqa: SLF001
    SparkSession._instantiatedSession = SparkSession._activeSession = None  # noqa: SLF001
