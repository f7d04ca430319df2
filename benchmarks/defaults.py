"""Managers as `godwit worker` runs them by default: with the store in the broker's file, scheduler and recorder."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.journal.shards import Position
from godwit.manager import MessageQueueManager
from godwit.store.sqlite.store import SqliteStore


@asynccontextmanager
async def without_store(path: Path) -> AsyncIterator[MessageQueueManager]:
    """Open a manager of a file as with GODWIT_STORE_URL=none: what is left is a worker and its broker."""
    async with MessageQueueManager(SqliteBroker(path)) as manager:
        yield manager


@asynccontextmanager
async def as_by_default(path: Path) -> AsyncIterator[MessageQueueManager]:
    """Open a manager of a file, and do beside it what a worker's process does."""
    async with MessageQueueManager(SqliteBroker(path), store=SqliteStore(path)) as manager:
        care = [asyncio.create_task(manager.scheduler.run()), asyncio.create_task(manager.store_services.run())]
        try:
            yield manager
        finally:
            for task in care:
                task.cancel()
            await asyncio.gather(*care, return_exceptions=True)


async def recorded(manager: MessageQueueManager) -> None:
    """Wait until the recorder has all that is in the journal now."""
    assert manager.store is not None
    ends = await manager.broker.journal.shards()
    wanted = {shard: Position(end.epoch, end.last_seq) for shard, end in ends.items() if end.last_seq}
    while wanted.items() - dict(await manager.store.messages.positions()).items():  # noqa: ASYNC110
        await asyncio.sleep(0.02)
