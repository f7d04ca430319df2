"""Gives each test processes that do not outlive it, and a queue in a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.faults.child_processes import ChildProcesses


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    """Give a way to start processes, all of which end with the test."""
    children = ChildProcesses()
    yield children
    children.kill_all()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Harness]:
    """Give an open SQLite broker, in real time; others open the same file `tmp_path / "godwit.db"`."""
    harness = Harness("sqlite", tmp_path, live=True)
    await harness.start()
    yield harness
    await harness.stop()
