"""Promises that rest on time, shown by the server's own clock; the conformance suite moves one by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import pytest

from tests.conformance import test_promise_02_leases as leases
from tests.conformance import test_promise_04_delays as delays
from tests.conformance import test_promise_05_counters as counters
from tests.conformance import test_promise_09_expiry as expiry
from tests.conformance import test_promise_10_deduplication as deduplication
from tests.conformance import test_promise_11_bookkeeping as bookkeeping
from tests.conformance.harness import Harness

PROMISES: Final[tuple[Callable[[Harness], Awaitable[None]], ...]] = (
    leases.test_a_leased_message_is_not_given_to_anybody_else,
    leases.test_maintain_ten_times_at_once_changes_nothing_more_than_once,
    delays.test_a_retry_without_delay_is_ready_at_once,
    counters.test_a_lease_that_runs_out_counts_as_a_crash,
    expiry.test_a_message_past_its_expiry_is_a_dead_letter_and_not_delivered,
    expiry.test_ttl_counts_from_creation,
    deduplication.test_an_id_is_fresh_again_after_the_window,
    bookkeeping.test_delivering_and_acking_are_in_the_journal_with_their_times,
)


@pytest.mark.parametrize("backend", ["redis", "valkey"])
@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__.removeprefix("test_"))
async def test_a_promise_holds_by_the_servers_own_clock(
    promise: Callable[[Harness], Awaitable[None]], backend: str, tmp_path: Path
) -> None:
    harness = Harness(backend, tmp_path, live=True)
    await harness.start()
    try:
        await promise(harness)
    finally:
        await harness.stop()
