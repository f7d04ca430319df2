"""Settling: acks, retries, dead letters and hand-backs of the copies that workers hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import assert_never

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.memory.group import GONE, MemoryCopy, MemoryGroup
from godwit.brokers.memory.leases import Transition
from godwit.brokers.memory.maintain import end_row, exhausted
from godwit.core.clock import milliseconds
from godwit.core.failures.failure import FailureKind, remembered
from godwit.core.journal.rows import JournalRow, acked_row, returned_row
from godwit.core.journal.vocabulary import RETURN_KINDS, Event
from godwit.core.names import AckId


def settle(
    settlements: Sequence[Settlement], held: dict[AckId, MemoryCopy], now_of: Callable[[MemoryGroup], int]
) -> tuple[dict[Transition, list[JournalRow]], list[AckId]]:
    """Carry out settlements; return the journal rows they made and the ack ids refused."""
    rows: dict[Transition, list[JournalRow]] = {}
    refused: list[AckId] = []
    group: MemoryGroup | None = None
    worker = ""
    now_ms = 0
    acked: list[JournalRow] = []
    for settlement in settlements:
        copy = held.pop(settlement.ack_id, None)
        if copy is None:
            refused.append(settlement.ack_id)
            continue
        if copy.group is not group or copy.worker != worker:
            group, worker = copy.group, copy.worker
            now_ms = now_of(group)
            acked = rows.setdefault((group, Event.ACKED, worker), [])
        group.unlease(copy)
        if isinstance(settlement, Ack):
            group.end(copy, GONE, now_ms)
            envelope = copy.envelope
            row = acked_row(
                envelope.id, copy.seq, copy.token, copy.attempt, copy.failures, copy.crashes,
                now_ms - copy.leased_ms if settlement.run_ms is None else settlement.run_ms,
                envelope.type, copy.lane, envelope.ordering_key, settlement,
            )  # fmt: skip
            acked.append(row)
        else:
            event, ended = _refusal(settlement, copy, now_ms)
            rows.setdefault((group, event, worker), []).append(ended)
    return rows, refused


def _refusal(
    settlement: Nack | Postpone | GiveUp | HandBack, copy: MemoryCopy, now_ms: int
) -> tuple[Event, JournalRow]:
    """Carry out anything but an ack."""
    group = copy.group
    match settlement:
        case HandBack():
            copy.attempt -= 1
            group.give_back(copy, now_ms, now_ms)
            return Event.HANDED_BACK, returned_row(end_row(copy, now_ms, None, None), now_ms)
        case Nack() | Postpone() | GiveUp():
            error = settlement.error
            fingerprint = error.fingerprint if error is not None else None
            copy.failures += not isinstance(settlement, Postpone)
            copy.errors = remembered(copy.errors, error)
            if isinstance(settlement, Postpone) or (isinstance(settlement, Nack) and not exhausted(copy)):
                event = Event.POSTPONED if isinstance(settlement, Postpone) else Event.NACKED
                group.give_back(copy, now_ms + milliseconds(settlement.delay), now_ms)
                row = end_row(copy, now_ms, settlement.run_ms, RETURN_KINDS[event], fingerprint)
                return event, returned_row(row, copy.ready_ms)
            kind = FailureKind.TRANSIENT if isinstance(settlement, Nack) else settlement.kind
            group.bury(copy, kind, now_ms)
            return Event.DEAD_LETTERED, end_row(copy, now_ms, settlement.run_ms, kind, fingerprint)
        case _:
            assert_never(settlement)
