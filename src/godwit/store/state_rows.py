"""Copies and messages as rows of the state tables, in the order of their columns."""

from __future__ import annotations

from typing import Any

from godwit.core.journal.changes import CopyChange, MessageChange
from godwit.store.bodies import facts_of, json_text


def copy_record(copy: CopyChange, worker: str | None, *, careful: bool = False) -> tuple[Any, ...]:
    """Return a copy's columns; `worker` is the name of its worker as the table takes it."""
    return (
        copy.queue,
        copy.group,
        copy.publish_seq,
        copy.message_id,
        copy.status,
        copy.retry_count,
        copy.attempt,
        copy.failures,
        copy.crashes,
        worker,
        copy.delivery_id,
        copy.ready_at,
        copy.delivered_at,
        copy.lease_until,
        copy.run_ms,
        copy.error_kind,
        copy.error_fingerprint,
        json_text(copy.result, careful=careful),
        copy.updated_at,
    )


def message_record(message: MessageChange, *, careful: bool = False) -> tuple[Any, ...]:
    """Return the columns of a message that arrived."""
    arrival = message.arrival
    assert arrival is not None  # noqa: S101 (the caller looked)
    facts = facts_of(arrival.body, careful=careful)
    return (
        arrival.queue,
        message.message_id,
        arrival.type,
        arrival.priority,
        facts.payload,
        facts.metadata,
        message.retry_count,
        facts.max_retries,
        arrival.scheduled_at,
        arrival.expires_at,
        facts.created_at_ms or arrival.at,
        message.updated_at,
    )
