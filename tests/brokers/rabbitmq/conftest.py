"""A harness on the node that all tests of this process share, and short words for looking at it from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.faults.child_processes import ChildProcesses
from tests.servers.rabbitmq import RabbitNode, the_node


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let one process run all tests of this folder that share a node: each node needs seconds of a processor."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("rabbitmq"))


@pytest.fixture
def node() -> RabbitNode:
    """Give the shared node."""
    return the_node()


@pytest.fixture
async def rabbit(tmp_path: Path) -> AsyncIterator[Harness]:
    """Give a broker of its own on the shared node."""
    harness = Harness("rabbitmq", tmp_path)
    await harness.start()
    yield harness
    await harness.finish()


@pytest.fixture
def children() -> Iterator[ChildProcesses]:
    """Give processes that do not outlive the test."""
    children = ChildProcesses()
    yield children
    children.kill_all()


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Say whether there is time for what takes a minute."""
    return bool(request.config.getoption("--hypothesis-profile") == "soak")
