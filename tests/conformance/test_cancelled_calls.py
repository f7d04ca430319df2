"""Every call of a broker may be cancelled at any point: nothing is lost, kept or locked by that."""

from __future__ import annotations

import pytest

from tests.conformance.cancelled_calls import CALLS, cancelled
from tests.conformance.harness import Harness

pytestmark = pytest.mark.timeout(120)
BACKENDS = ("memory", "sqlite", "redis")


@pytest.mark.parametrize("live", BACKENDS, indirect=True)
@pytest.mark.parametrize("call", CALLS)
async def test_a_call_may_be_cancelled_at_any_point(live: Harness, call: str) -> None:
    await cancelled(live, CALLS[call])
