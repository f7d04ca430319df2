"""A publisher process of the demo: publishes its share and records the id of every receipt."""

from __future__ import annotations

import asyncio
import sys
from itertools import islice
from typing import Final

from godwit.brokers.urls import connect
from godwit.cli.demo.records import Accepted, ProcessSettings, Record, settings_from
from godwit.cli.demo.workload import doomed, messages
from godwit.core.messages.envelope import seal_all

BATCH: Final = 25
PAUSE_SECONDS: Final = 0.05


async def publish(part: ProcessSettings) -> None:
    """Publish in batches, with pauses, so that there is something to watch."""
    record = Record(part.record)
    rest = messages(part.messages, publisher=part.number, seed=part.seed)
    async with connect(part.url) as broker:
        while batch := list(islice(rest, BATCH)):
            await broker.publish(seal_all(batch))
            record.add(Accepted(id=message.id, queue=message.queue, doomed=doomed(message)) for message in batch)
            await asyncio.sleep(PAUSE_SECONDS)
    record.close()


if __name__ == "__main__":
    asyncio.run(publish(settings_from(sys.argv[1])))
