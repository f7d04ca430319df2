"""A worker process of the demo: pulls, handles, records the effect, settles."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Final

from godwit.brokers.contract import Ack, Broker, Delivery, GiveUp, Nack, Settlement
from godwit.brokers.urls import connect
from godwit.cli.demo.records import Handled, Part, Record, part_of
from godwit.cli.demo.scenario import LEASE, PLACES, RETRIES, WORK_SECONDS, Permanent, Place, Transient, handle
from godwit.core.clock import utc_now
from godwit.core.failure import ErrorType, FailureKind, ProcessingError

BATCH: Final = 10
WAIT: Final = timedelta(milliseconds=500)


class Worker:
    """Serves every place of the demo until it is told to stop."""

    def __init__(self, part: Part, broker: Broker) -> None:
        self._name, self._broker = part.name, broker
        self._record = Record(part.record, forget=part.forget)
        self._random = Random(f"{part.seed}:{part.name}")

    async def serve(self, place: Place, stopped: Callable[[], bool]) -> None:
        """Pull, handle, settle."""
        while not stopped():
            deliveries = await self._broker.pull(
                place.queue, place.group, worker=self._name, limit=BATCH, lease=LEASE, wait=WAIT
            )
            settlements = [await self._attempt(delivery) for delivery in deliveries]
            if settlements:
                await self._broker.settle(settlements)

    async def _attempt(self, delivery: Delivery) -> Settlement:
        await asyncio.sleep(WORK_SECONDS)
        message = delivery.open()
        try:
            handle(message, delivery.failures)
        except Transient as error:
            why = _remembered(error, ErrorType.NETWORK, retryable=True)
            delay = RETRIES.delay(attempt=delivery.failures + 1, jitter=self._random.random())
            if delay is None:
                return GiveUp(delivery.ack_id, FailureKind.TRANSIENT, why)
            return Nack(delivery.ack_id, delay, why)
        except Permanent as error:
            why = _remembered(error, ErrorType.VALIDATION, retryable=False)
            return GiveUp(delivery.ack_id, FailureKind.PERMANENT, why)
        # Recorded before it is acked: dying in between handles it twice, never zero times.
        effect = Handled(
            id=message.id,
            queue=delivery.queue,
            group=delivery.group,
            worker=self._name,
            at_ns=time.monotonic_ns(),
            key=message.ordering_key,
            turn=message.payload.get("turn", 0),
        )
        self._record.add([effect])
        return Ack(delivery.ack_id)


def _remembered(error: Exception, type: ErrorType, *, retryable: bool) -> ProcessingError:
    return ProcessingError(type=type, message=str(error), retryable=retryable, timestamp=utc_now())


async def work(part: Part) -> None:
    """Serve all places at once until SIGTERM, or until whoever started this process is gone."""
    stop, parent = asyncio.Event(), os.getppid()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    async with connect(part.url) as broker:
        worker = Worker(part, broker)

        def stopped() -> bool:
            return stop.is_set() or os.getppid() != parent

        await asyncio.gather(*(worker.serve(place, stopped) for place in PLACES))


if __name__ == "__main__":
    asyncio.run(work(part_of(sys.argv[1])))
