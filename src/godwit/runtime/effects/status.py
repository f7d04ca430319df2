"""Where a message stands: what is recorded, and what the journal tells beyond it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Final
from uuid import UUID

from godwit.brokers.contract import Journal, ShardEnds, Upkeep
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import JournalLost
from godwit.core.journal.batches import Piece, batches
from godwit.core.journal.changes import Batch
from godwit.core.journal.chunks import decode_chunk, mentions
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import MessageStatus, Status
from godwit.core.messages.message import DEFAULT_PRIORITY
from godwit.core.names import MessageId, check_message_id
from godwit.core.schedule.schedules import FiringStatus, single_id
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.bodies import DEFAULT_MAX_RETRIES
from godwit.store.contract import Store

SETTLING: Final = timedelta(milliseconds=300)
"""How long a recorder elsewhere may stand still before we record ourselves."""
LOOK: Final = timedelta(milliseconds=20)
NEAR: Final = 2_000
"""A recorder that is so many rows behind is waited for; beyond, the journal is searched for the message."""
PAGE: Final = 20_000


async def status_of(
    broker: Upkeep, store: Store, message_id: MessageId, *, clock: Clock = SYSTEM_CLOCK
) -> MessageStatus | None:
    """Say where a message stands; what the journal has by now is in the answer."""
    return await recorded(broker, store, message_id, clock) or await _not_sent_yet(store, message_id)


async def recorded(broker: Upkeep, store: Store, message_id: MessageId, clock: Clock) -> MessageStatus | None:
    """Say where a message stands that the broker has accepted; None for one that only a schedule knows."""
    check_message_id(message_id)
    journal, messages = broker.journal, store.messages
    loop = asyncio.get_running_loop()
    moved_at, before = loop.time(), None
    recorded_to = await messages.positions()  # before the ends: a recorder that moves meanwhile is not ahead of them
    ends = {shard: end for shard, end in (await journal.shards()).items() if end.last_seq}
    if any(end.is_set_back(recorded_to.get(shard)) for shard, end in ends.items()):
        await Recorder(journal, messages, clock=clock).catch_up()
    while True:
        positions = dict(await messages.positions())
        behind = {shard: end for shard, end in ends.items() if end.rows_after(positions.get(shard))}
        rows = sum(end.rows_after(positions.get(shard)) for shard, end in behind.items())
        if not rows:
            return await messages.status(message_id)
        if rows > NEAR:
            with suppress(JournalLost):  # the recorder starts over from a list of what the broker holds
                ahead = await _unrecorded(journal, message_id, positions, behind)
                found = await messages.status(message_id, ahead)
                # A recorder that has moved meanwhile may have recorded more than we read.
                if positions == await messages.positions():
                    return found
        if positions != before:
            before, moved_at = positions, loop.time()
        elif loop.time() - moved_at > SETTLING.total_seconds():
            await Recorder(journal, messages, clock=clock).catch_up()
            return await messages.status(message_id)
        await asyncio.sleep(LOOK.total_seconds())


async def _unrecorded(
    journal: Journal, message_id: MessageId, positions: Mapping[str, Position], behind: Mapping[str, ShardEnds]
) -> Sequence[Batch]:
    """Return what the journal tells of a message beyond what is recorded."""
    pieces: list[Piece] = []
    for shard, end in behind.items():
        start = position = positions.get(shard)
        found = []
        while position is None or position.seq < end.last_seq:
            page = await journal.read(shard, position, limit=PAGE)
            if not page:
                break
            found += [chunk for chunk in page if mentions(chunk, message_id)]
            last = decode_chunk(page[-1])
            position = Position(last.epoch, last.last_seq)
        pieces.append((shard, start, map(decode_chunk, found)))
    return list(batches(pieces, only=message_id))


async def _not_sent_yet(store: Store, message_id: MessageId) -> MessageStatus | None:
    """Return the status of a message that waits in the store until it is due."""
    firing = await store.schedules.find(single_id(message_id))
    if firing is None:
        with suppress(ValueError):  # those of rules and campaigns are called as their firing is
            firing = await store.schedules.find(UUID(message_id))
    if firing is None:
        return None
    gone = firing.status in (FiringStatus.CANCELLED, FiringStatus.CANCELLING)
    return MessageStatus(
        id=message_id,
        queue=firing.queue,
        type="message",
        priority=DEFAULT_PRIORITY,
        status=Status.CANCELLED if gone else Status.SCHEDULED,
        retry_count=0,
        max_retries=DEFAULT_MAX_RETRIES,
        created_at=None,
        updated_at=None,
        scheduled_at=firing.deliver_at,
    )
