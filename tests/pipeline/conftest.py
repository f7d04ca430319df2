"""One Spark session for all tests that share it, in one pytest process: a JVM costs 2 GB.

Tests that start drivers of their own are a second group, so that another process works on them at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from godwit.pipeline.spark.jvm import Jvm
from godwit.pipeline.spark.session import SMALL, spark_session
from tests.pipeline.drivers import kill_all, lasting_jvm
from tests.servers.class_archive import archive_option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
CORES = 2
TIMEOUT_SECONDS = int(os.environ.get("GODWIT_SPARK_TIMEOUT", "600"))
"""A batch of a second takes ten on a machine with other work, and a test interrupted inside Spark breaks the next."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            used = [name for name in ("spark", "jvm") if name in getattr(item, "fixturenames", ())]
            item.add_marker(pytest.mark.xdist_group(" ".join(used) or f"spark {item.path.stem}"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark(archive: str) -> Iterator[SparkSession]:
    """Run Spark once for all tests of a process; the classes first, which take a context of their own to be made."""
    with spark_session("tests", master=f"local[{CORES}]", settings=SMALL) as session:
        yield session


@pytest.fixture(scope="session")
def archive() -> str:
    """Have all JVMs that are started from here on map Spark's classes; return the option that does it."""
    option = archive_option()
    os.environ["PYSPARK_SUBMIT_ARGS"] = f"--conf spark.driver.defaultJavaOptions={option} pyspark-shell"
    return option


@pytest.fixture(scope="session")
def jvm(archive: str) -> Iterator[Jvm]:
    """Run a JVM for drivers that are killed again and again. A fifth of the blocks its workers send kills them."""
    with lasting_jvm("sink.published%20") as running:
        yield running


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    """End the drivers that a failed test left."""
    yield
    kill_all()
