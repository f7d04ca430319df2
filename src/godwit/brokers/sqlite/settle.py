"""Settling and extending: what a worker's word does to the copies it holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, assert_never

from godwit.brokers.contract import Ack, GiveUp, HandBack, Retry, Settlement
from godwit.brokers.sqlite import copies as places
from godwit.brokers.sqlite.care import end_row, exhausted
from godwit.brokers.sqlite.copies import decode_errors, encode_errors
from godwit.brokers.sqlite.leases import PULL_BITS, Lease, find_leases
from godwit.brokers.sqlite.rows import Group
from godwit.brokers.sqlite.work import Work
from godwit.core.clock import milliseconds
from godwit.core.failure import FailureKind, remembered
from godwit.core.journal import Event
from godwit.core.names import AckId

Transition = tuple[int, Event, str]
"""Group, event and worker: rows that have them in common share a chunk."""
LONGEST_TOKEN = 64


def settle(work: Work, settlements: Sequence[Settlement]) -> list[AckId]:
    """End leases in the order given; return the ack ids that were not, or no longer, valid."""
    addresses, found = _find(work, [settlement.ack_id for settlement in settlements], end=True)
    groups: dict[int, Group] = {}
    rows: dict[Transition, list[tuple[Any, ...]]] = {}
    refused: list[AckId] = []
    ended = work.ended
    for settlement in settlements:
        address = addresses.get(settlement.ack_id)
        lease = found.pop((address[0].id, address[1]), None) if address is not None else None
        if address is None or lease is None:
            refused.append(settlement.ack_id)
            continue
        group = address[0]
        worker = lease.pull.worker
        if group.id not in groups:
            groups[group.id] = group
            work.now(group.queue)
        acked = rows.setdefault((group.id, Event.ACKED, worker), [])
        group.leased -= 1
        group.leased_bytes -= lease.size
        if type(settlement) is Ack:
            group.bytes -= lease.size
            ended[lease.run] += 1
            if lease.key is not None and group.spec.message_ordering:
                places.release_key(work, group, lease.key, group.queue.at)
            run_ms = group.queue.at - lease.pull.delivered_at if settlement.run_ms is None else settlement.run_ms
            row = (
                lease.message_id, lease.seq, lease.token, lease.attempt, lease.failures, lease.crashes, run_ms,
                lease.type, lease.lane, lease.key,
            )  # fmt: skip
            acked.append(row if settlement.result is None else (*row, settlement.result))
        else:
            event, row = _refusal(work, group, settlement, lease, group.queue.at)
            rows.setdefault((group.id, event, worker), []).append(row)
    for (group_id, event, worker), made in rows.items():
        if made:
            work.journal(groups[group_id].queue, event, groups[group_id], worker, made)
    _journal_refused(work, refused)
    return refused


def _find(
    work: Work, ack_ids: Iterable[AckId], *, end: bool
) -> tuple[dict[AckId, tuple[Group, str]], dict[tuple[int, str], Lease]]:
    """Return what the ack ids of declared groups address, and those of their leases that are open."""
    by_prefix: dict[str, Group | None] = {}
    addresses: dict[AckId, tuple[Group, str]] = {}
    tokens: dict[str, Group] = {}
    for ack_id in ack_ids:
        prefix, _, token = ack_id.rpartition("#")
        if prefix not in by_prefix:
            group, rest = work.addressed(ack_id)
            # Another partition, or a stray '#', is no way to write an ack id of ours.
            by_prefix[prefix] = group if group is not None and group.ack_prefix + rest == ack_id else None
        group = by_prefix[prefix]
        if group is not None:
            addresses[ack_id] = (group, token)
            tokens[f"{group.id}:{token}"] = group
    return addresses, find_leases(work, tokens, end=end)


def _refusal(
    work: Work, group: Group, settlement: Retry | GiveUp | HandBack, lease: Lease, now_ms: int
) -> tuple[Event, tuple[Any, ...]]:
    """Carry out anything but an ack."""
    copy = lease.copy(group)
    match settlement:
        case HandBack():
            copy.attempt -= 1
            places.give_back(work, group, copy, now_ms, now_ms)
            return Event.HANDED_BACK, (*end_row(lease, copy, now_ms, None, None), now_ms)
        case Retry() | GiveUp():
            error = settlement.error
            fingerprint = error.fingerprint if error is not None else None
            copy.failures += 1
            if error is not None:
                copy.errors = encode_errors(remembered(decode_errors(copy.errors), error))
            if isinstance(settlement, Retry) and not exhausted(group, copy):
                places.give_back(work, group, copy, now_ms + milliseconds(settlement.delay), now_ms)
                row = end_row(lease, copy, now_ms, settlement.run_ms, FailureKind.TRANSIENT, fingerprint)
                return Event.NACKED, (*row, copy.ready_at)
            kind = FailureKind.TRANSIENT if isinstance(settlement, Retry) else settlement.kind
            places.bury(work, group, copy, kind, now_ms)
            return Event.DEAD_LETTERED, end_row(lease, copy, now_ms, settlement.run_ms, kind, fingerprint)
        case _:
            assert_never(settlement)


def extend(work: Work, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
    """Let leases end `lease_ms` from now; return the ack ids refused."""
    addresses, found = _find(work, ack_ids, end=False)
    rows: dict[tuple[int, str], list[tuple[Any, ...]]] = {}
    groups: dict[int, Group] = {}
    refused: list[AckId] = []
    changed: list[tuple[int, int, int]] = []
    due: dict[int, int] = {}
    for ack_id in ack_ids:
        address = addresses.get(ack_id)
        lease = found.get((address[0].id, address[1])) if address is not None else None
        if address is None or lease is None:
            refused.append(ack_id)
            continue
        group = groups[address[0].id] = address[0]
        until = work.now(group.queue) + lease_ms
        changed.append((until, lease_ms, lease.id))
        due[lease.id >> PULL_BITS] = until
        row = (lease.message_id, lease.seq, lease.token, until)
        rows.setdefault((group.id, lease.pull.worker), []).append(row)
    work.executemany("UPDATE broker_leases SET until = ?, length = ? WHERE id = ?", changed)
    work.executemany(
        "UPDATE broker_pulls SET due = min(due, ?), shortest = min(shortest, ?) WHERE id = ?",
        [(until, lease_ms, pull_id) for pull_id, until in due.items()],
    )
    for (group_id, worker), made in rows.items():
        work.journal(groups[group_id].queue, Event.EXTENDED, groups[group_id], worker, made)
    _journal_refused(work, refused)
    return refused


def _journal_refused(work: Work, refused: Iterable[AckId]) -> None:
    for ack_id in refused:
        group, token = work.addressed(ack_id)
        if group is not None and 0 < len(token) <= LONGEST_TOKEN:
            work.now(group.queue)
            work.journal(group.queue, Event.ACK_REFUSED, group, None, [(token,)])
