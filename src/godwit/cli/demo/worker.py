"""A worker process of the demo: the runtime's worker, with handlers that record their effect."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Final

from godwit.brokers.urls import connect
from godwit.cli.demo.records import Handled, ProcessSettings, Record, settings_from
from godwit.cli.demo.workload import AT_ONCE, GROUPS, LEASE, RETRIES, WORK_SECONDS, QueueGroup, handle
from godwit.core.messages.message import Message
from godwit.runtime.worker.consumer import CURRENT, Consumer
from godwit.runtime.worker.worker import Worker

PARENT_SECONDS: Final = 0.5


def consumer(group: QueueGroup, part: ProcessSettings, record: Record) -> Consumer:
    """Return the consumer of a group."""

    async def handler(message: Message) -> None:
        await asyncio.sleep(WORK_SECONDS)
        handle(message, CURRENT.get()[0].delivery.failures)
        # Recorded before it is acked: dying in between handles it twice, never zero times.
        effect = Handled(
            id=message.id,
            queue=group.queue,
            group=group.group,
            worker=part.name,
            at_ns=time.monotonic_ns(),
            key=message.ordering_key,
            turn=message.payload.get("turn", 0),
        )
        record.add([effect])

    return Consumer(
        handler=handler,
        queues=(group.queue,),
        group=group.group,
        concurrency=AT_ONCE,
        lease=LEASE,
        retry_policy=RETRIES,
    )


async def work(part: ProcessSettings) -> None:
    """Serve all groups until SIGTERM, or until the parent process is gone."""
    record, parent = Record(part.record, forget=part.forget), os.getppid()
    async with connect(part.url) as broker:
        consumers = [consumer(group, part, record) for group in GROUPS]
        worker = Worker(broker, consumers, name=part.name)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
        running = asyncio.create_task(worker.run())
        while not running.done() and os.getppid() == parent:
            await asyncio.wait([running], timeout=PARENT_SECONDS)
        worker.stop()
        await running


if __name__ == "__main__":
    asyncio.run(work(settings_from(sys.argv[1])))
