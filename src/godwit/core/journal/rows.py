"""The rows of the journal: one builder for each layout of `vocabulary`; in Python no other place puts a row together.

Fields are given by position, in the order of the layout, because rows are made by the hundred thousand. What most rows
lack (lineage and body, marks, a result) is cut off where a row ends with it: a reader takes what is missing as null.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Protocol

JournalRow = tuple[Any, ...]
ACKED_FIELDS: Final = 10
"""The fields of a handled message that every row has."""


class HandlerOutcome(Protocol):
    """What an ack says for the journal (`Ack` of the broker contract)."""

    @property
    def result(self) -> bytes | None:
        """What the handler returned."""
        ...


def declared_row(spec: bytes) -> JournalRow:
    """Return the row of a queue or a group that was created: its settings as JSON."""
    return (spec,)


def held_row(hold: bytes | None) -> JournalRow:
    """Return the row of a pause, a drain or their end: who, since when and why, as JSON."""
    return (hold,)


def removal_row(publish_seqs: Iterable[int], count: int | None = None) -> JournalRow:
    """Return the row of copies that were taken away together: their number, the first and the last of theirs."""
    seqs = list(publish_seqs)
    return (len(seqs) if count is None else count, min(seqs, default=None), max(seqs, default=None))


def arrival_row(
    message_id: str,
    publish_seq: int,
    copy: int,
    copies: int,
    type: str,
    priority: int,
    lane: int | None,
    ordering_key: str | None,
    ready_at: int,
    deliver_at: int | None,
    expires_at: int | None,
    size: int,
    schedule_id: str | None,
    campaign: str | None,
    replay_of: str | None,
    body: bytes | None,
    correlation_id: str | None,
    attributes: str | None,
) -> JournalRow:
    """Return the row of a copy that came in, now or for later."""
    if correlation_id is None and attributes is None:
        if body is None and schedule_id is None and campaign is None and replay_of is None:
            return (
                message_id, publish_seq, copy, copies, type, priority, lane, ordering_key, ready_at, deliver_at,
                expires_at, size,
            )  # fmt: skip
        return (
            message_id, publish_seq, copy, copies, type, priority, lane, ordering_key, ready_at, deliver_at,
            expires_at, size, schedule_id, campaign, replay_of, body,
        )  # fmt: skip
    return (
        message_id, publish_seq, copy, copies, type, priority, lane, ordering_key, ready_at, deliver_at, expires_at,
        size, schedule_id, campaign, replay_of, body, correlation_id, attributes,
    )  # fmt: skip


def arrival_end(
    schedule_id: str | None,
    campaign: str | None,
    replay_of: str | None,
    body: bytes | None,
    correlation_id: str | None,
    attributes: str | None,
) -> JournalRow:
    """Return how the row of an arrival ends, from the field on that most of them lack."""
    if correlation_id is None and attributes is None:
        if body is None and schedule_id is None and campaign is None and replay_of is None:
            return ()
        return (schedule_id, campaign, replay_of, body)
    return (schedule_id, campaign, replay_of, body, correlation_id, attributes)


def replayed_row(
    message_id: str,
    publish_seq: int,
    type: str,
    priority: int,
    lane: int | None,
    ordering_key: str | None,
    ready_at: int,
    deliver_at: int | None,
    size: int,
    schedule_id: str | None,
    campaign: str | None,
    body: bytes | None,
    former_seq: int,
    correlation_id: str | None,
    attributes: str | None,
) -> JournalRow:
    """Return the row of a dead letter that waits again as the only copy of its message, ready and without an expiry."""
    row = (
        message_id, publish_seq, 0, 1, type, priority, lane, ordering_key, ready_at, deliver_at, None, size,
        schedule_id, campaign, message_id, body, former_seq,
    )  # fmt: skip
    return row if correlation_id is None and attributes is None else (*row, correlation_id, attributes)


def delivered_row(
    message_id: str,
    publish_seq: int,
    delivery_id: str,
    attempt: int,
    failures: int,
    crashes: int,
    lease_until: int,
    wait_ms: int,
    type: str,
    lane: int | None,
    ordering_key: str | None,
) -> JournalRow:
    """Return the row of a lease given to a worker."""
    return (
        message_id, publish_seq, delivery_id, attempt, failures, crashes, lease_until, wait_ms, type, lane,
        ordering_key,
    )  # fmt: skip


def renewed_row(message_id: str, publish_seq: int, delivery_id: str | None, lease_until: int) -> JournalRow:
    """Return the row of a lease that ends later, because its worker or an outage extended it."""
    return (message_id, publish_seq, delivery_id, lease_until)


def acked_row(
    message_id: str,
    publish_seq: int,
    delivery_id: str | None,
    attempt: int,
    failures: int,
    crashes: int,
    run_ms: int,
    type: str,
    lane: int | None,
    ordering_key: str | None,
    ack: HandlerOutcome,
) -> JournalRow:
    """Return the row of a message that was handled, with what its ack says."""
    row = (
        message_id, publish_seq, delivery_id, attempt, failures, crashes, run_ms, type, lane, ordering_key,
    )  # fmt: skip
    return row + acked_end(ack)


def acked_end(ack: HandlerOutcome) -> JournalRow:
    """Return how the row of a handled message ends, from the field on that most acks lack."""
    return () if ack.result is None else (ack.result,)


def ended_row(
    message_id: str,
    publish_seq: int,
    delivery_id: str | None,
    attempt: int,
    failures: int,
    crashes: int,
    run_ms: int | None,
    type: str,
    lane: int | None,
    ordering_key: str | None,
    error_kind: str | None,
    error_fingerprint: str | None,
) -> JournalRow:
    """Return the row of a copy that died, by an error or its expiry."""
    return (
        message_id, publish_seq, delivery_id, attempt, failures, crashes, run_ms, type, lane, ordering_key,
        error_kind, error_fingerprint,
    )  # fmt: skip


def returned_row(ended: JournalRow, ready_at: int) -> JournalRow:
    """Return the row of a delivery that ended, as `ended_row` gives it, and whose copy waits again until an instant."""
    return (*ended, ready_at)


def refused_row(delivery_id: str) -> JournalRow:
    """Return the row of a settlement that was not valid."""
    return (delivery_id,)


def cancelled_row(message_id: str, publish_seq: int) -> JournalRow:
    """Return the row of a copy that was deleted while it waited."""
    return (message_id, publish_seq)


def discarded_row(message_id: str, publish_seq: int, target: str | None) -> JournalRow:
    """Return the row of a dead letter that was deleted, or moved to the queue `target`."""
    return (message_id, publish_seq, target)


def dropped_row(message_id: str, publish_seq: int, size: int) -> JournalRow:
    """Return the row of a copy that a full group refused."""
    return (message_id, publish_seq, size)


def duplicate_row(message_id: str) -> JournalRow:
    """Return the row of a message that was published before."""
    return (message_id,)
