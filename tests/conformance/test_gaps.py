"""The list of gaps is strict: each is a test there is, of a promise the backend names, with a weaker one shown."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Final

import pytest

from tests.conformance import test_weaker_promises
from tests.conformance.conftest import pytest_pyfunc_call
from tests.conformance.gaps import GAPS, Gap, gap_of
from tests.conformance.harness import Harness

ALLOWED: Final = {"rabbitmq": frozenset(str(promise) for promise in range(2, 12))}
"""The promises that the design lets a backend keep in part. Any other needs a decision file."""
LISTED: Final = [(backend, test) for backend, gaps in GAPS.items() for test in gaps]


@cache
def collected() -> frozenset[tuple[str, str]]:
    """Return module and name of every conformance test, as pytest shows them."""
    command = [sys.executable, "-m", "pytest", "tests/conformance", "--collect-only", "-q", "-p", "no:cacheprovider"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    tests = (line.partition("::") for line in lines if "::" in line)
    return frozenset((module.rpartition("/")[2], test) for module, _, test in tests)


async def test_a_backend_keeps_no_other_promise_in_part_than_those_decided(harness: Harness) -> None:
    assert harness.broker.partial_promises <= ALLOWED.get(harness.name, frozenset())


async def test_a_backend_names_every_promise_of_which_it_has_a_gap(harness: Harness) -> None:
    assert {str(gap.promise) for gap in GAPS.get(harness.name, {}).values()} <= harness.broker.partial_promises


def test_every_gap_is_a_test_there_is() -> None:
    found = {(backend, test) for backend in GAPS for test in GAPS[backend] if reached(backend, test)}
    assert set(LISTED) - found == set()


def reached(backend: str, listed: str) -> bool:
    """Say whether one of the collected tests is the one listed."""
    gap = GAPS[backend][listed]
    return any(backend in test and gap_of(backend, module, test) is gap for module, test in collected())


@pytest.mark.parametrize(("backend", "test"), LISTED)
def test_every_gap_has_a_weaker_promise_that_a_test_shows(backend: str, test: str) -> None:
    assert callable(getattr(test_weaker_promises, GAPS[backend][test].instead, None))


def test_every_weaker_promise_stands_for_a_gap() -> None:
    shown = {name for name in vars(test_weaker_promises) if name.startswith("test_")}
    assert shown == {gap.instead for gaps in GAPS.values() for gap in gaps.values()}


ON_MEMORY: Final = pytest.mark.parametrize("harness", ["memory"], indirect=True)


@pytest.fixture
def as_a_gap(harness: Harness, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Gap:
    """List the very test that asks for this as a gap of the backend it runs on."""
    gap = Gap(promise=7, fails_with="AssertionError: out of order", instead="test_nothing")
    name = f"{request.node.path.name}::{request.node.originalname}"
    monkeypatch.setitem(GAPS, harness.name, {name: gap})
    return gap


@ON_MEMORY
async def test_the_failure_listed_is_reported_as_a_gap(as_a_gap: Gap, request: pytest.FixtureRequest) -> None:
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(pytest.xfail.Exception, match="promise 7 is kept in part"):
        call.throw(AssertionError("out of order"))
    raise AssertionError("out of order")  # this test is listed as well, so that it has to fail


@ON_MEMORY
async def test_another_failure_of_a_gap_stays_a_failure(as_a_gap: Gap, request: pytest.FixtureRequest) -> None:
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(ValueError, match="out of order"):
        call.throw(ValueError("out of order"))
    raise AssertionError("out of order")


@ON_MEMORY
async def test_a_gap_that_passes_is_a_failure(as_a_gap: Gap, request: pytest.FixtureRequest) -> None:
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(pytest.fail.Exception, match="take it off the list"):
        call.send(None)
    raise AssertionError("out of order")


async def test_a_failure_of_a_test_that_is_not_listed_stays_a_failure(
    harness: Harness, request: pytest.FixtureRequest
) -> None:
    call = pytest_pyfunc_call(request.node)
    next(call)
    with pytest.raises(AssertionError, match="out of order"):
        call.throw(AssertionError("out of order"))
