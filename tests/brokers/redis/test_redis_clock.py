"""Promises that rest on time, shown by the server's own clock; the conformance suite moves one by hand."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import harness
from tests.conformance import test_promise_02_leases as leases
from tests.conformance import test_promise_04_delays as delays
from tests.conformance import test_promise_05_counters as counters
from tests.conformance import test_promise_09_expiry as expiry
from tests.conformance import test_promise_10_deduplication as deduplication
from tests.conformance import test_promise_11_bookkeeping as bookkeeping
from tests.conformance.harness import MOMENT, Harness, ids_of

PROMISES: Final[tuple[Callable[[Harness], Awaitable[None]], ...]] = (
    leases.test_maintain_ten_times_at_once_changes_nothing_more_than_once,
    delays.test_a_retry_without_delay_is_ready_at_once,
    counters.test_a_lease_that_runs_out_counts_as_a_crash,
    expiry.test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered,
    expiry.test_ttl_counts_from_creation,
    deduplication.test_an_id_is_fresh_again_after_the_window,
    bookkeeping.test_delivering_and_acking_are_in_the_journal_with_their_times,
)
LONGER: Final = timedelta(seconds=4)
"""In real time a machine with other work needs more room between "not yet" and "no longer"."""


@pytest.fixture(params=["redis", "valkey"])
async def live(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Harness]:
    """Give a broker whose time is the server's."""
    for module in (harness, leases, delays, counters, expiry, deduplication, bookkeeping):
        monkeypatch.setattr(module, "LEASE", LONGER)
    made = Harness(request.param, tmp_path, live=True)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__.removeprefix("test_"))
async def test_a_promise_holds_by_the_servers_own_clock(
    promise: Callable[[Harness], Awaitable[None]], live: Harness
) -> None:
    await promise(live)


async def test_a_leased_message_is_not_given_to_anybody_else(live: Harness) -> None:
    """With a lease that outlasts a machine which is taken away for some seconds."""
    lease = timedelta(seconds=20)
    await live.declare()
    await live.publish("a")
    assert ids_of(await live.pull(lease=lease)) == ["a"]
    await live.let_pass(MOMENT)
    assert await live.pull(worker="worker-2") == []
