"""One Spark session for all tests that share it, in one pytest process: a JVM costs 2 GB.

Tests that start drivers of their own are a second group, so that another process works on them at the same time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from godwit.pipeline.gateway import Jvm
from godwit.pipeline.session import SMALL, spark_session
from tests.pipeline.drivers import kill_all, lasting_jvm

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
CORES = 2
TIMEOUT_SECONDS = int(os.environ.get("GODWIT_SPARK_TIMEOUT", "280"))
"""A batch of a second takes ten on a machine with other work, and a test interrupted inside Spark breaks the next."""
LAST_SECONDS = TIMEOUT_SECONDS + 20
"""pytest interrupts a test once. One that still waits for a JVM then, in its clean-up, is without it from here on."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            shared = "spark" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("spark" if shared else "spark drivers"))
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(TIMEOUT_SECONDS))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    with spark_session("tests", master=f"local[{CORES}]", settings=SMALL) as session:
        yield session


@pytest.fixture(scope="session")
def jvm() -> Iterator[Jvm]:
    """Run a JVM for drivers that are killed again and again. A fifth of the blocks its workers send kills them."""
    with lasting_jvm("sink.published%20") as running:
        yield running


@pytest.fixture(autouse=True)
def _without_hanging() -> Iterator[None]:
    """End what a failed test left behind, and the JVMs of one that pytest's own time limit could not end."""
    timer = threading.Timer(LAST_SECONDS, _kill_jvms)
    timer.daemon = True
    timer.start()
    yield
    timer.cancel()
    kill_all()


def _kill_jvms() -> None:
    for pid in _descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                os.kill(pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found
