"""Leasing: what a pull and an extension do to copies."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from itertools import count

from godwit.brokers.contract import Delivery
from godwit.brokers.memory.group import LEASED, MemoryCopy, MemoryGroup
from godwit.core.journal.rows import JournalRow, delivered_row, renewed_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import AckId

Transition = tuple[MemoryGroup, Event, str]
"""Rows with the same group, event and worker share a chunk."""


def token_maker() -> Iterator[str]:
    """Give tokens that no lease of this or an earlier engine had."""
    prefix = secrets.token_hex(3)
    return (f"{prefix}{number:x}" for number in count(1))


def lease(
    copies: Sequence[MemoryCopy],
    held: dict[AckId, MemoryCopy],
    tokens: Iterator[str],
    *,
    worker: str,
    lease_ms: int,
    now_ms: int,
) -> tuple[list[Delivery], list[JournalRow]]:
    """Lease copies of one group to a worker; return its deliveries and their journal rows."""
    group = copies[0].group
    queue, name, prefix = group.queue, group.name, group.ack_prefix
    deadline_ms = now_ms + lease_ms
    leases = group.lease_out(lease_ms, deadline_ms)
    deliveries: list[Delivery] = []
    rows: list[JournalRow] = []
    size = 0
    for copy, token in zip(copies, tokens, strict=False):
        envelope, seq = copy.envelope, copy.seq
        copy.token = token
        copy.place = LEASED
        copy.attempt = attempt = copy.attempt + 1
        copy.worker = worker
        copy.lease_ms = lease_ms
        copy.leased_ms = now_ms
        copy.deadline_ms = deadline_ms
        leases[copy] = None
        ack_id = AckId(prefix + token)
        held[ack_id] = copy
        size += envelope.size
        counters = (attempt, copy.failures, copy.crashes)
        times = (copy.ready_ms, now_ms, deadline_ms)
        deliveries.append(Delivery(ack_id, queue, name, envelope, seq, *counters, copy.errors, *times))
        waited_ms, kind, key = now_ms - copy.ready_ms, envelope.type, envelope.ordering_key
        rows.append(delivered_row(envelope.id, seq, token, *counters, deadline_ms, waited_ms, kind, copy.lane, key))
    group.ready -= len(copies)
    group.leased += len(copies)
    group.leased_bytes += size
    group.pulls += 1
    group.due_hint_ms = min(group.due_hint_ms, deadline_ms)
    return deliveries, rows


def extend(
    ack_ids: Sequence[AckId], held: dict[AckId, MemoryCopy], now_of: Callable[[MemoryGroup], int], lease_ms: int
) -> tuple[dict[Transition, list[JournalRow]], list[AckId]]:
    """Let leases end `lease_ms` from now; return their journal rows and the ack ids refused."""
    rows: dict[Transition, list[JournalRow]] = {}
    refused: list[AckId] = []
    for ack_id in ack_ids:
        copy = held.get(ack_id)
        if copy is None:
            refused.append(ack_id)
            continue
        group = copy.group
        group.unlease(copy)
        copy.lease_ms, copy.deadline_ms = lease_ms, now_of(group) + lease_ms
        group.lease_out(lease_ms, copy.deadline_ms)[copy] = None
        group.leased += 1
        group.leased_bytes += copy.envelope.size
        group.due_hint_ms = min(group.due_hint_ms, copy.deadline_ms)
        row = renewed_row(copy.envelope.id, copy.seq, copy.token, copy.deadline_ms)
        rows.setdefault((group, Event.EXTENDED, copy.worker), []).append(row)
    return rows, refused
