"""A harness on the node that all tests of this process share, and short words for looking at it from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.conformance.harness import Harness
from tests.faults.crew import Crew
from tests.servers.rabbitmq import RabbitNode, the_node


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
def crew() -> Iterator[Crew]:
    """Give processes that do not outlive the test."""
    crew = Crew()
    yield crew
    crew.kill_all()


@pytest.fixture
def soak(request: pytest.FixtureRequest) -> bool:
    """Say whether there is time for what takes a minute."""
    return bool(request.config.getoption("--hypothesis-profile") == "soak")
