from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.fault_points import VARIABLE
from godwit.manager import MessageQueueManager
from tests.project.specification import ROOT
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of

Run = Callable[..., int]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def harness(backend: str, tmp_path: Path) -> Iterator[StoreHarness]:
    with harness_of(backend, tmp_path) as made:
        yield made


@pytest.fixture
def mq(harness: StoreHarness, tmp_path: Path) -> MessageQueueManager:
    return MessageQueueManager(SqliteBroker(str(tmp_path / "broker.db")), store=harness.open())


@pytest.fixture
def run(harness: StoreHarness, tmp_path: Path) -> Run:
    """Run a role of `process.py` until it is done or killed at a fault point; return its exit code."""

    def start(role: str, fault: str = "") -> int:
        place = [str(tmp_path / "broker.db"), harness.url]
        command = [sys.executable, "-m", "tests.store.effects.process", role, *place]
        environment = os.environ | {VARIABLE: fault}
        return subprocess.run(command, cwd=ROOT, env=environment, check=False, timeout=200).returncode

    return start
