"""From chunks of the journal to the changes they make: many transitions coalesced into one change per copy.

A copy that arrives and ends within a batch never touches the open tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec

from godwit.core.journal.changes import Arrival, Batch, CopyChange, InstanceWork, LetterFacts, Removal, Step
from godwit.core.journal.chunks import Chunk
from godwit.core.journal.lifecycle import LIFECYCLE, REMOVALS, CopyStep
from godwit.core.journal.limits import fitting
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import STATUS_OF, Status
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.limits import EARLIEST_MS, LATEST_MS, bounded_ms

Piece = tuple[str, Position | None, Iterable[Chunk]]
"""A shard, how far it was read before, and the chunks that follow."""


def batches(pieces: Iterable[Piece], *, only: str | None = None) -> Iterator[Batch]:
    """Coalesce chunks; a removal ends a batch, because it may concern copies that only the tables know.

    With `only` what concerns other messages is left out.
    """
    batch = Batch()
    for shard, before, chunks in pieces:
        position = before
        for chunk in chunks:
            if position is not None and chunk.epoch == position.epoch and chunk.last_seq <= position.seq:
                continue
            seen = position.seq if position is not None and position.epoch == chunk.epoch else 0
            unusable = len(batch.unusable)
            _take(batch, chunk, seen, only)
            former = batch.steps.get(shard) or Step(shard, position, position or Position(chunk.epoch, 0), 0)
            position = Position(chunk.epoch, chunk.last_seq)
            lost = former.lost + len(batch.unusable) - unusable
            batch.steps[shard] = Step(shard, former.before, position, bounded_ms(chunk.at), lost)
            if batch.removal is not None:
                batch.removal = msgspec.structs.replace(batch.removal, shard=shard)
                yield batch
                batch = Batch()
    if batch.steps:
        yield batch


def _take(batch: Batch, chunk: Chunk, seen: int, only: str | None) -> None:
    """Carry out the rows of a chunk beyond `seen`."""
    rows = chunk.rows[seen - chunk.first_seq + 1 :] if seen >= chunk.first_seq else chunk.rows
    if not EARLIEST_MS <= chunk.at <= LATEST_MS:
        chunk = msgspec.structs.replace(chunk, at=bounded_ms(chunk.at))
    told = len(rows)
    rows = fitting(chunk.event, rows, batch.unusable.append)
    if only is not None and chunk.event not in REMOVALS:
        rows = [row for row in rows if row[0] == only]
        told = len(rows)
    batch.rows += told
    if not rows and chunk.event not in REMOVALS:
        return
    take = _TAKERS.get(chunk.event)
    if take is not None:
        take(batch, chunk, rows)


UNKNOWN: Final = "unknown"
"""The type of a message whose arrival does not tell it."""
_STATUS: Final = {event: STATUS_OF[move.target] for event, move in LIFECYCLE.items()}
_ARRIVAL_WIDTH: Final = LAYOUTS[Event.ENQUEUED].index("body") + 1
_ACK_WIDTH: Final = LAYOUTS[Event.ACKED].index("result") + 1
_RETURN_WIDTH: Final = LAYOUTS[Event.NACKED].index("ready_at") + 1
_DEATH_WIDTH: Final = LAYOUTS[Event.DEAD_LETTERED].index("error_fingerprint") + 1
"""How many fields of a row are taken: those that were appended later say nothing of the state."""
_FORMER: Final = LAYOUTS[Event.REPLAYED].index("former_seq")


def _arrive(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    queue, group, at, copies = chunk.queue, chunk.group or "", chunk.at, batch.copies
    status = _STATUS[chunk.event]
    for row in rows:
        (message_id, seq, _, total, kind, priority, _, _, ready_at, deliver_at, expires_at, _, _, _, _, body) = _filled(
            row, _ARRIVAL_WIDTH
        )
        if chunk.event is Event.REPLAYED:
            former = _existing(batch, queue, group, row[_FORMER], message_id)
            former.finished_at = former.updated_at = at
            former.superseded = True
            batch.letters[former.address] = None
        copy = copies[queue, group, seq] = CopyChange.arrived(queue, group, seq, message_id, status)
        copy.ready_at, copy.updated_at = ready_at, at
        known = batch.arrivals.get(message_id)
        if known is None or known.body is None:
            batch.arrivals[message_id] = Arrival(
                queue, message_id, kind or UNKNOWN, priority or 0, deliver_at, expires_at, body, at, total or 1
            )


def _filled(row: list[Any], width: int) -> list[Any]:
    """Return a row with as many fields as we know: an older layout has fewer, a newer one more."""
    if len(row) == width:
        return row
    return row[:width] + [None] * (width - len(row))


def _existing(batch: Batch, queue: str, group: str, seq: int, message_id: str) -> CopyChange:
    copy = batch.copies.get((queue, group, seq))
    if copy is None:
        copy = batch.copies[queue, group, seq] = CopyChange(queue, group, seq, message_id)
    return copy


def _deliver(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    queue, group, at, worker = chunk.queue, chunk.group or "", chunk.at, chunk.worker
    for row in rows:
        message_id, seq, delivery_id, attempt, failures, crashes, lease_until = row[:7]
        copy = _existing(batch, queue, group, seq, message_id)
        copy.status = _STATUS[Event.DELIVERED]
        copy.delivery_id, copy.lease_until, copy.worker = delivery_id, lease_until, worker
        copy.attempt, copy.failures, copy.crashes = attempt, failures, crashes
        copy.delivered_at = copy.updated_at = at
    _seen(batch, chunk)


def _move_lease(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    for message_id, seq, _, lease_until, *_ in rows:
        copy = _existing(batch, chunk.queue, chunk.group or "", seq, message_id)
        copy.lease_until, copy.updated_at = lease_until, chunk.at
    _seen(batch, chunk)


def _ack(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    queue, group, at = chunk.queue, chunk.group or "", chunk.at
    width = _ACK_WIDTH
    total_ms = 0
    for row in rows:
        message_id, seq, _, attempt, failures, crashes, run_ms, _, _, _, result = _filled(row, width)
        copy = _existing(batch, queue, group, seq, message_id)
        copy.status = _STATUS[Event.ACKED]
        copy.attempt, copy.failures, copy.crashes, copy.retry_count = attempt, failures, crashes, failures + crashes
        copy.delivery_id, copy.lease_until, copy.run_ms, copy.result = None, None, run_ms, result
        copy.finished_at = copy.updated_at = at
        total_ms += run_ms or 0
    work = _seen(batch, chunk)
    if work is not None:
        work.processed += len(rows)
        work.run_ms += total_ms


def _return(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    """Carry out nacks, postponements, leases that ran out and hand-backs: the copy waits again."""
    queue, group, at = chunk.queue, chunk.group or "", chunk.at
    status, width = _STATUS[chunk.event], _RETURN_WIDTH
    for row in rows:
        message_id, seq, _, attempt, failures, crashes, run_ms, _, _, _, kind, print_, ready_at = _filled(row, width)[
            :width
        ]
        copy = _existing(batch, queue, group, seq, message_id)
        copy.status = status
        copy.attempt, copy.failures, copy.crashes, copy.retry_count = attempt, failures, crashes, failures + crashes
        copy.delivery_id, copy.lease_until, copy.ready_at, copy.run_ms = None, None, ready_at, run_ms
        copy.error_kind, copy.error_fingerprint = kind or copy.error_kind, print_ or copy.error_fingerprint
        copy.updated_at = at
    work = _seen(batch, chunk)
    if work is not None and chunk.event not in _NO_ERRORS:
        work.errors += len(rows)


def _bury(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    """Carry out dead-lettering and expiry: the copy stays, as a dead letter."""
    queue, group, at = chunk.queue, chunk.group or "", chunk.at
    status = _STATUS[chunk.event]
    width = _DEATH_WIDTH
    for row in rows:
        message_id, seq, _, attempt, failures, crashes, run_ms, type_, _, _, kind, print_ = _filled(row, width)
        copy = _existing(batch, queue, group, seq, message_id)
        copy.status = status
        copy.attempt, copy.failures, copy.crashes = attempt, failures, crashes
        # The last failure was not followed by another try.
        copy.retry_count = max(0, failures + crashes - (status is Status.FAILED))
        copy.delivery_id, copy.lease_until, copy.run_ms = None, None, run_ms
        copy.error_kind, copy.error_fingerprint = kind or copy.error_kind, print_ or copy.error_fingerprint
        copy.updated_at = at
        batch.letters[queue, group, seq] = LetterFacts(
            message_id, type_, kind or status.value, print_, attempt, failures, crashes, chunk.worker, at
        )
    work = _seen(batch, chunk)
    if work is not None:
        work.errors += len(rows)


def _end(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    """Carry out cancelling (of what waits) and discarding (of what is dead, which keeps its status)."""
    queue, group, at = chunk.queue, chunk.group or "", chunk.at
    for row in rows:
        copy = _existing(batch, queue, group, row[1], row[0])
        if chunk.event is Event.CANCELLED:
            copy.status = _STATUS[Event.CANCELLED]
        else:
            batch.letters[copy.address] = None
        copy.finished_at = copy.updated_at = at


def _remove(batch: Batch, chunk: Chunk, _rows: list[list[Any]]) -> None:
    batch.removal = Removal(chunk.event, chunk.queue, chunk.group, chunk.at)


def _create(batch: Batch, chunk: Chunk, rows: list[list[Any]]) -> None:
    body = (rows[-1][0] if rows[-1] else None) or b"{}"
    if chunk.event is Event.QUEUE_CREATED:
        batch.queues[chunk.queue] = (body, chunk.at)
    else:
        batch.groups[chunk.queue, chunk.group or ""] = (body, chunk.at)


def _seen(batch: Batch, chunk: Chunk) -> InstanceWork | None:
    """Note that a worker gave a sign of life; return its books."""
    if chunk.worker is None:
        return None
    work = batch.instances.setdefault((chunk.queue, chunk.group or "", chunk.worker), InstanceWork())
    work.last_at = max(work.last_at, chunk.at)
    return work


_NO_ERRORS: Final = frozenset({Event.HANDED_BACK, Event.POSTPONED})
"""Returns that are no fault of the message or of its handler."""
_OF_STEP: Final = {
    CopyStep.ARRIVE: _arrive,
    CopyStep.DELIVER: _deliver,
    CopyStep.RENEW: _move_lease,
    CopyStep.RETURN: _return,
    CopyStep.DIE: _bury,
    CopyStep.ACK: _ack,
    CopyStep.CANCEL: _end,
    CopyStep.DISCARD: _end,
    CopyStep.PURGE: _remove,
    CopyStep.REMOVE: _remove,
}
_TAKERS: Final = {event: _OF_STEP[move.step] for event, move in LIFECYCLE.items()} | {
    Event.QUEUE_CREATED: _create,
    Event.GROUP_CREATED: _create,
}
