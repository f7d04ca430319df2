from __future__ import annotations

from typing import Any

import pytest

from godwit.core.journal.projection import CopyState, Projection
from godwit.core.journal.vocabulary import LAYOUTS, Event


def row(event: Event, seq: int = 1, group: str | None = "g", **fields: Any) -> dict[str, Any]:
    named = {"event": event, "queue": "q", "group": group, "at": 0, **dict.fromkeys(LAYOUTS[event])}
    if "publish_seq" in named:
        named |= {"publish_seq": seq, "message_id": f"m{seq}"}
    counters = {name: 0 for name in ("attempt", "failures", "crashes") if name in named}
    return named | counters | fields


def after(*rows: dict[str, Any]) -> dict[int, CopyState]:
    projection = Projection()
    for one in rows:
        projection.apply(one)
    return {seq: copy for (_, _, seq), copy in projection.copies.items()}


ENQUEUED = row(Event.ENQUEUED, ready_at=5)
DELIVERED = row(Event.DELIVERED, delivery_id="t", lease_until=30, attempt=1)


def test_a_published_copy_waits() -> None:
    assert after(ENQUEUED) == {
        1: CopyState(queue="q", group="g", publish_seq=1, message_id="m1", state="waiting", ready_at=5)
    }


def test_a_delivered_copy_is_leased_until_its_deadline() -> None:
    (copy,) = after(ENQUEUED, DELIVERED).values()
    assert (copy.state, copy.delivery_id, copy.lease_until, copy.attempt, copy.ready_at) == ("leased", "t", 30, 1, 5)


@pytest.mark.parametrize("event", [Event.EXTENDED, Event.LEASE_MOVED])
def test_a_lease_can_get_another_deadline(event: Event) -> None:
    (copy,) = after(ENQUEUED, DELIVERED, row(event, lease_until=60)).values()
    assert (copy.state, copy.lease_until, copy.attempt) == ("leased", 60, 1)


@pytest.mark.parametrize("event", [Event.NACKED, Event.POSTPONED, Event.LEASE_EXPIRED, Event.HANDED_BACK])
def test_a_returned_copy_waits_again_with_its_counters(event: Event) -> None:
    (copy,) = after(ENQUEUED, DELIVERED, row(event, attempt=1, failures=2, crashes=3, ready_at=9)).values()
    assert (copy.state, copy.delivery_id, copy.lease_until, copy.ready_at) == ("waiting", None, None, 9)
    assert (copy.attempt, copy.failures, copy.crashes) == (1, 2, 3)


@pytest.mark.parametrize("event", [Event.DEAD_LETTERED, Event.MESSAGE_EXPIRED])
def test_a_copy_given_up_on_is_dead(event: Event) -> None:
    (copy,) = after(ENQUEUED, DELIVERED, row(event, attempt=1)).values()
    assert (copy.state, copy.lease_until) == ("dead", None)


@pytest.mark.parametrize("event", [Event.ACKED, Event.CANCELLED, Event.DISCARDED])
def test_a_copy_that_is_done_cancelled_or_discarded_is_gone(event: Event) -> None:
    assert after(ENQUEUED, row(event)) == {}


def test_a_replayed_copy_takes_a_new_place() -> None:
    copies = after(ENQUEUED, row(Event.DEAD_LETTERED), row(Event.REPLAYED, 2, former_seq=1, ready_at=7))
    assert {seq: copy.state for seq, copy in copies.items()} == {2: "waiting"}


def test_purging_removes_what_waits_and_removing_a_group_everything() -> None:
    life = [row(Event.ENQUEUED, seq, ready_at=0) for seq in (1, 2, 3)]
    life += [row(Event.DELIVERED, 2, delivery_id="t", lease_until=1), row(Event.DEAD_LETTERED, 3)]
    assert set(after(*life, row(Event.PURGED))) == {2, 3}
    assert set(after(*life, row(Event.PURGED, group="other"))) == {1, 2, 3}
    assert set(after(*life, row(Event.GROUP_REMOVED))) == set()
    assert set(after(*life, row(Event.QUEUE_REMOVED, group=None))) == set()


@pytest.mark.parametrize(
    "event", [Event.QUEUE_CREATED, Event.GROUP_CREATED, Event.DROPPED, Event.DUPLICATE, Event.ACK_REFUSED]
)
def test_some_events_move_no_copy(event: Event) -> None:
    assert after(ENQUEUED, row(event, 9)) == after(ENQUEUED)


def test_a_projection_can_start_from_a_snapshot() -> None:
    projection = Projection(after(ENQUEUED).values())
    projection.apply(DELIVERED)
    assert list(projection.copies.values()) == list(after(ENQUEUED, DELIVERED).values())


def test_a_transition_of_an_unknown_copy_is_an_error() -> None:
    with pytest.raises(KeyError):
        Projection().apply(DELIVERED)
