"""Runs every test of this folder over every backend, and reports gaps as gaps.

A module says with `pytestmark = pytest.mark.promise(n)` which promise it shows. A test always runs. When it fails and
the backend lists that promise in `capabilities`, it is reported as `xfailed` with the gap's number; any other failure
is a failure.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from tests.conformance.harness import BACKENDS, Harness

EVERY = [
    # A node, or a cluster, needs seconds to start: one process runs all its tests.
    pytest.param(name, marks=pytest.mark.xdist_group(name)) if name in {"rabbitmq", "redis-cluster"} else name
    for name in BACKENDS
]


@pytest.fixture(params=EVERY)
async def harness(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    """Give a fresh backend whose time is moved by the test where possible."""
    harness = Harness(request.param, tmp_path)
    await harness.start()
    yield harness
    await harness.finish()


@pytest.fixture(params=EVERY)
async def live(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Harness]:
    """Give a fresh backend in real time, for pulls that wait."""
    harness = Harness(request.param, tmp_path, live=True)
    await harness.start()
    yield harness
    await harness.finish()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Turn the failure of a promise that the backend declares as a gap into a report of that gap."""
    try:
        return (yield)
    except Exception as failure:
        gap = declared_gap(pyfuncitem)
        if gap is None:
            raise
        pytest.xfail(f"capability gap: {gap} ({type(failure).__name__}: {failure})")


def declared_gap(item: pytest.Function) -> str | None:
    """Say which declared gap covers a test, if one does."""
    harness = item.funcargs.get("harness") or item.funcargs.get("live")
    mark = item.get_closest_marker("promise")
    if mark is None or not isinstance(harness, Harness) or not harness.gap(mark.args[0]):
        return None
    return f"{harness.name} keeps promise {mark.args[0]} in part"
