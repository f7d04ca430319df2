"""Starting over from a list of what a queue holds, where the journal no longer tells how it came about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from godwit.core.journal.batches import UNKNOWN
from godwit.core.journal.changes import Address, Arrival, Batch, CopyChange, LetterFacts, Step
from godwit.core.journal.lifecycle import PHASE_OF, Phase, State
from godwit.core.journal.projection import CopyState
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import STATUS_OF, Status

_STATUS_OF: Final[dict[str, Status]] = {
    PHASE_OF[state]: STATUS_OF[state] for state in (State.READY, State.LEASED, State.DEAD)
}

Known = Iterable[tuple[Address, str]]
"""Addresses of open copies, with their message ids."""


def forgotten(shard: str, before: Position | None, epoch: str, known: Known, now_ms: int) -> Batch:
    """Return the batch that ends all copies of a journal that was replaced by another one, called `epoch`."""
    batch = Batch()
    batch.steps[shard] = Step(shard, before, Position(epoch, 0), now_ms)
    for address, message_id in known:
        _end_unseen(batch, address, message_id, now_ms)
    return batch


def replaced(shard: str, position: Position, gone: Known, now_ms: int) -> Batch:
    """Return the batch that ends copies whose numbers other messages have now; the position stays."""
    batch = Batch()
    batch.steps[shard] = Step(shard, position, position, now_ms)
    for address, message_id in gone:
        _end_unseen(batch, address, message_id, now_ms)
    return batch


def _end_unseen(batch: Batch, address: Address, message_id: str, now_ms: int) -> None:
    gone = batch.copies[address] = CopyChange(*address, message_id)
    gone.finished_at = gone.updated_at = now_ms
    batch.letters[address] = None


def resynced(
    shard: str,
    before: Position | None,
    after: Position,
    copies: Iterable[CopyState],
    known: Known,
    now_ms: int,
) -> Batch:
    """Return the batch that leads from the `known` open copies to the ones listed.

    Copies that are gone ended unseen: they keep the status they had. Those not known before have no body.
    """
    batch = Batch()
    batch.steps[shard] = Step(shard, before, after, now_ms)
    here = {copy.address: copy for copy in copies}
    had = dict(known)
    for address, message_id in had.items():
        if address not in here:
            _end_unseen(batch, address, message_id, now_ms)
    for address, copy in here.items():
        born = address not in had
        change = batch.copies[address] = CopyChange(*address, copy.message_id, born=born)
        change.status = _STATUS_OF[copy.state]
        change.attempt, change.failures, change.crashes = copy.attempt, copy.failures, copy.crashes
        change.retry_count = copy.failures + copy.crashes
        change.delivery_id, change.lease_until, change.ready_at = copy.delivery_id, copy.lease_until, copy.ready_at
        change.updated_at = now_ms
        if born:
            batch.arrivals.setdefault(
                copy.message_id, Arrival(copy.queue, copy.message_id, UNKNOWN, 0, None, None, None, now_ms)
            )
        if copy.state == Phase.DEAD:
            batch.letters[address] = LetterFacts(
                copy.message_id, None, UNKNOWN, None, copy.attempt, copy.failures, copy.crashes, None, now_ms
            )
    return batch
