"""Runs every test of this folder over every backend.

A test that a backend does not pass is listed in gaps.py with the failure to expect. It is reported as `xfailed` only
when it fails in just that way; when it passes, or fails in another way, it fails.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Generator
from pathlib import Path

import pytest

from tests.conformance.gaps import Gap, gap_of
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
    """Hold a test that is listed as a gap to the failure listed."""
    gap = listed(pyfuncitem)
    try:
        result = yield
    except Exception as failure:
        if gap is None or gap.fails_with not in f"{type(failure).__name__}: {failure}":
            raise
        pytest.xfail(f"promise {gap.promise} is kept in part: {gap.instead}")
    if gap is not None and not gap.by_chance:
        pytest.fail("This test passes now: take it off the list in tests/conformance/gaps.py.")
    return result


def listed(item: pytest.Function) -> Gap | None:
    """Return the gap that a test is on the backend it runs on, if it is one."""
    harness = item.funcargs.get("harness") or item.funcargs.get("live")
    return gap_of(harness.name, item.path.name, item.name) if isinstance(harness, Harness) else None
