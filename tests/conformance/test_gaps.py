"""What a backend may leave out: said in one value, and only what the design allows."""

from __future__ import annotations

from typing import Final

from tests.conformance.harness import Harness

ALLOWED: Final = {"rabbitmq": frozenset(str(promise) for promise in range(2, 12))}
"""The gaps of the design's table. Any other gap, on any broker, needs a decision file."""


async def test_a_backend_has_no_gap_beyond_those_decided(harness: Harness) -> None:
    assert harness.broker.capabilities <= ALLOWED.get(harness.name, frozenset())


async def test_a_gap_is_the_number_of_a_promise(harness: Harness) -> None:
    assert harness.broker.capabilities <= {str(number) for number in range(1, 12)}
