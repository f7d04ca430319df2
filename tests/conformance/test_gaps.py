"""What a backend may leave out: said in one value, and only what the design allows."""

from __future__ import annotations

from typing import Final

import pytest

from tests.conformance.conftest import declared_gap, pytest_pyfunc_call
from tests.conformance.harness import Harness

ALLOWED: Final = {"rabbitmq": frozenset(str(promise) for promise in range(2, 12))}
"""The gaps of the design's table. Any other gap, on any broker, needs a decision file."""


async def test_a_backend_has_no_gap_beyond_those_decided(harness: Harness) -> None:
    assert harness.broker.capabilities <= ALLOWED.get(harness.name, frozenset())


async def test_a_gap_is_the_number_of_a_promise(harness: Harness) -> None:
    assert harness.broker.capabilities <= {str(number) for number in range(1, 12)}


@pytest.mark.promise(7)
async def test_a_failure_of_a_declared_gap_is_reported_as_that_gap(
    harness: Harness, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(harness.broker), "capabilities", frozenset({"7"}))
    assert harness.gap(7)
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(pytest.xfail.Exception, match=f"capability gap: {harness.name} keeps promise 7 in part"):
        call.throw(AssertionError("out of order"))


@pytest.mark.promise(7)
async def test_a_failure_of_any_other_promise_stays_a_failure(
    harness: Harness, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(harness.broker), "capabilities", frozenset({"8"}))
    assert declared_gap(request.node) is None
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(AssertionError, match="out of order"):
        call.throw(AssertionError("out of order"))
