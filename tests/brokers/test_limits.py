"""What fits into a group without looking closer."""

from __future__ import annotations

from godwit.brokers.limits import Fill, fits
from godwit.core.names import QueueName
from godwit.core.queues import QueueSpec

SPEC = QueueSpec(name=QueueName("q"), max_delayed=1_000)


def test_what_is_ready_does_not_count_toward_the_limit_of_what_waits_for_its_time() -> None:
    """Otherwise every publish into a queue deeper than `max_delayed` would be looked at message by message."""
    assert fits(SPEC, Fill(depth=5_000, bytes=0, delayed=0), 100, 0, delayed=0)
    assert not fits(SPEC, Fill(depth=5_000, bytes=0, delayed=950), 100, 0, delayed=950)


def test_a_broker_that_does_not_know_how_many_wait_takes_all_for_them() -> None:
    assert fits(SPEC, Fill(depth=900, bytes=0, delayed=0), 100, 0)
    assert not fits(SPEC, Fill(depth=901, bytes=0, delayed=0), 100, 0)
