"""Settling and extending: what a worker's word does to the copies it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import assert_never

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.sqlite.layout.copies import bury, decode_errors, encode_errors, give_back, release_key
from godwit.brokers.sqlite.layout.leases import Block, Blocks, LeaseRow
from godwit.brokers.sqlite.layout.rows import GroupRow
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.brokers.sqlite.maintain import end_row, exhausted
from godwit.core.clock import milliseconds
from godwit.core.failures.failure import FailureKind, remembered
from godwit.core.journal.rows import JournalRow, acked_row, refused_row, renewed_row, returned_row
from godwit.core.journal.vocabulary import RETURN_KINDS, Event
from godwit.core.names import AckId

Transition = tuple[int, Event, str]
"""Group, event and worker: rows that have them in common share a chunk."""
LONGEST_TOKEN = 64


def settle(work: SqliteStep, settlements: Sequence[Settlement]) -> list[AckId]:
    """End leases in the order given; return the ack ids that were not, or no longer, valid."""
    addresses = Addresses(work)
    groups: dict[int, GroupRow] = {}
    rows: dict[Transition, list[JournalRow]] = {}
    refused: list[AckId] = []
    ended = work.ended
    group_id, worker, acked = 0, "", list[JournalRow]()
    for settlement in settlements:
        found = addresses.find(settlement.ack_id)
        if found is None:
            refused.append(settlement.ack_id)
            continue
        group, token, block, lease = found
        if group.id != group_id or block.worker != worker:
            group_id, worker = group.id, block.worker
            acked = rows.setdefault((group_id, Event.ACKED, worker), [])
            if group_id not in groups:
                groups[group_id] = group
                _begin(work, group)
        del block.open[lease.place]
        block.changed = True
        group.leased -= 1
        group.leased_bytes -= lease.size
        if type(settlement) is Ack:
            group.bytes -= lease.size
            ended[lease.run] += 1
            if lease.key is not None and group.spec.message_ordering:
                release_key(work, group, lease.key, group.queue.at)
            run_ms = group.queue.at - block.delivered_at if settlement.run_ms is None else settlement.run_ms
            row = acked_row(
                lease.message_id, lease.seq, token, lease.attempt, lease.failures, lease.crashes, run_ms,
                lease.type, lease.lane, lease.key, settlement,
            )  # fmt: skip
            acked.append(row)
        elif not isinstance(settlement, Ack):
            event, ending = _refusal(work, group, settlement, block, lease)
            rows.setdefault((group_id, event, worker), []).append(ending)
    addresses.blocks.save()
    for (number, event, name), made in rows.items():
        if made:
            work.journal(groups[number].queue, event, groups[number], name, made)
    _journal_refused(work, refused)
    return refused


def _begin(work: SqliteStep, group: GroupRow) -> None:
    work.now(group.queue)
    flow = group.spec.flow_control
    if flow.max_messages is not None or flow.max_bytes is not None:
        work.ready.add(group.queue.name)  # what is settled makes room


class Addresses:
    """The way from ack ids to leases; groups and blocks are loaded once."""

    def __init__(self, work: SqliteStep) -> None:
        self._work = work
        self._groups: dict[str, GroupRow | None] = {}
        self.blocks = Blocks(work)

    def find(self, ack_id: AckId) -> tuple[GroupRow, str, Block, LeaseRow] | None:
        """Return what an ack id stands for, or None when it is not, or no longer, valid."""
        if not ack_id.isascii():
            return None  # all of ours are
        prefix, _, token = ack_id.rpartition("#")
        group = self._groups.get(prefix)
        if group is None and prefix not in self._groups:
            group, _ = self._work.addressed(ack_id)
            # Another partition, or a stray '#', is no way to write an ack id of ours.
            if group is not None and group.ack_prefix != f"{prefix}#":
                group = None
            self._groups[prefix] = group
        found = self.blocks.find(group, token) if group is not None else None
        return (group, token, *found) if group is not None and found is not None else None


def _refusal(
    work: SqliteStep, group: GroupRow, settlement: Nack | Postpone | GiveUp | HandBack, block: Block, lease: LeaseRow
) -> tuple[Event, JournalRow]:
    """Carry out anything but an ack."""
    copy = lease.copy(group)
    now_ms = group.queue.at
    match settlement:
        case HandBack():
            copy.attempt -= 1
            give_back(work, group, copy, now_ms, now_ms)
            return Event.HANDED_BACK, returned_row(end_row(block, lease, copy, now_ms, None, None), now_ms)
        case Nack() | Postpone() | GiveUp():
            error = settlement.error
            fingerprint = error.fingerprint if error is not None else None
            copy.failures += not isinstance(settlement, Postpone)
            if error is not None:
                copy.errors = encode_errors(remembered(decode_errors(copy.errors), error))
            if isinstance(settlement, Postpone) or (isinstance(settlement, Nack) and not exhausted(group, copy)):
                event = Event.POSTPONED if isinstance(settlement, Postpone) else Event.NACKED
                give_back(work, group, copy, now_ms + milliseconds(settlement.delay), now_ms)
                row = end_row(block, lease, copy, now_ms, settlement.run_ms, RETURN_KINDS[event], fingerprint)
                return event, returned_row(row, copy.ready_at)
            kind = FailureKind.TRANSIENT if isinstance(settlement, Nack) else settlement.kind
            bury(work, group, copy, kind, now_ms)
            return Event.DEAD_LETTERED, end_row(block, lease, copy, now_ms, settlement.run_ms, kind, fingerprint)
        case _:
            assert_never(settlement)


def extend(work: SqliteStep, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
    """Let leases end `lease_ms` from now; return the ack ids refused."""
    addresses = Addresses(work)
    rows: dict[tuple[int, str], list[JournalRow]] = {}
    groups: dict[int, GroupRow] = {}
    refused: list[AckId] = []
    for ack_id in ack_ids:
        found = addresses.find(ack_id)
        if found is None:
            refused.append(ack_id)
            continue
        group, token, block, lease = found
        groups[group.id] = group
        lease.until, lease.length = work.now(group.queue) + lease_ms, lease_ms
        block.changed = True
        row = renewed_row(lease.message_id, lease.seq, token, lease.until)
        rows.setdefault((group.id, block.worker), []).append(row)
    addresses.blocks.save()
    for (group_id, worker), made in rows.items():
        work.journal(groups[group_id].queue, Event.EXTENDED, groups[group_id], worker, made)
    _journal_refused(work, refused)
    return refused


def _journal_refused(work: SqliteStep, refused: Iterable[AckId]) -> None:
    for ack_id in refused:
        group, token = work.addressed(ack_id)
        if group is not None and 0 < len(token) <= LONGEST_TOKEN:
            work.now(group.queue)
            work.journal(group.queue, Event.ACK_REFUSED, group, None, [refused_row(token)])
