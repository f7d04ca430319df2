"""Pulling for one consumer: as much as it has free slots, from its queues in turn."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import Broker, Delivery, Settlement
from godwit.core.errors import BrokerClosed, GodwitError
from godwit.core.handling import Judgement
from godwit.core.logs import get_logger
from godwit.core.names import QueueName
from godwit.runtime.balancing import Credits
from godwit.runtime.consumer import Consumer
from godwit.runtime.execution import Execution
from godwit.runtime.gate import Gate
from godwit.runtime.held import HeldTable, Terms
from godwit.runtime.line import Line
from godwit.runtime.quarantine import Quarantine
from godwit.runtime.turns import Turns

LONGEST_WAIT: Final = timedelta(seconds=5)
GATED_WAIT: Final = timedelta(seconds=1)
_PAUSE_AFTER_ERROR: Final = 0.25
_HELD_BACK_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

log = get_logger(__name__)


class Puller:
    """The loop of one consumer in one worker."""

    def __init__(
        self,
        broker: Broker,
        consumer: Consumer,
        *,
        worker: str,
        held: HeldTable,
        threads: Executor,
        settle: Callable[[Settlement], None],
        judge: Callable[[BaseException, Delivery], Judgement],
        delivered: Callable[[Sequence[Delivery]], None],
        gate: Gate,
        quarantine: Quarantine,
        grace: timedelta,
        credits_: Credits,
    ) -> None:
        self.consumer = consumer
        self._credits = credits_
        self.running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._broker = broker
        self._worker = worker
        self._held = held
        self._execution = Execution(consumer, threads, ended=self._ended)
        self._line = Line(self._execution.begin, self.running, ended=self._freed.set)
        self._terms = Terms(lease=consumer.lease, renewed_for=consumer.time_limit + grace, settle=settle, judge=judge)
        self._delivered = delivered
        self._gate = gate
        self._quarantine = quarantine
        self._suspected: QueueName | None = None
        """Where a message waits for its last chance."""
        self._turns = Turns(consumer.queues, consumer.weights, strict=consumer.strict)
        self._nudged = asyncio.Event()
        self._listener = broker.listen([(queue, consumer.group) for queue in consumer.queues])
        self._stopping = False

    async def run(self) -> None:
        """Pull until stopped; an absent broker is waited for."""
        pause = _PAUSE_AFTER_ERROR
        while not self._stopping:
            try:
                await self._turn()
                pause = _PAUSE_AFTER_ERROR
            except BrokerClosed:
                return
            except GodwitError as error:
                log.warning("pulling waits for the broker", consumer=self.consumer.name, error=str(error))
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _turn(self) -> None:
        consumer = self.consumer
        if self._suspected is not None:
            await self._last_chance(self._suspected)
            return
        await self._quarantine.may_begin()
        free = self._credits.now - len(self.running) - len(self._line)
        if free <= 0:
            self._freed.clear()
            await self._freed.wait()
            return
        self._listener.clear()
        self._nudged.clear()
        took, held_back = 0, False
        for queue in self._turns.order():
            allowed = await self._gate.admit((queue, consumer.group), free) if free else 0
            held_back = held_back or (bool(free) and not allowed)
            if allowed:
                deliveries = await self._pull(queue, allowed)
                self._gate.begun((queue, consumer.group), len(deliveries))
                deliveries = self._without_suspects(queue, deliveries)
                took += len(deliveries)
                free -= self._start(deliveries)
        if took:
            await asyncio.sleep(0)  # let handlers begin before asking again
        elif not self._stopping:
            if held_back:
                # What is ready behind a pause or an open breaker ends the waiting at once, again and again.
                await self._rest()
            await self._listener.wait(LONGEST_WAIT if self._gate.is_open else GATED_WAIT)

    async def _rest(self) -> None:
        """Wait a moment, or until somebody says that things have changed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HELD_BACK_PAUSE):
                await self._nudged.wait()

    def _without_suspects(self, queue: QueueName, deliveries: list[Delivery]) -> list[Delivery]:
        """Hand back what is on its last chance: it is pulled again when it can be handled alone."""
        suspects = [one for one in deliveries if one.crashes >= self.consumer.last_chance]
        if not suspects:
            return deliveries
        self._suspected = queue
        for held in self._held.take(suspects, self._terms, time.monotonic()):
            held.hand_back()
        return [one for one in deliveries if one.crashes < self.consumer.last_chance]

    async def _last_chance(self, queue: QueueName) -> None:
        """Handle one message of a queue while this worker holds nothing else."""
        async with self._quarantine.alone():
            self._suspected = None
            place = (queue, self.consumer.group)
            if not self._stopping and await self._gate.admit(place, 1):
                deliveries = await self._broker.pull(*place, worker=self._worker, limit=1, lease=self.consumer.lease)
                self._gate.begun(place, len(deliveries))
                self._start(deliveries)

    async def _pull(self, queue: QueueName, free: int) -> list[Delivery]:
        consumer = self.consumer
        limit = free if consumer.batch is None else consumer.batch
        deliveries = await self._broker.pull(
            queue, consumer.group, worker=self._worker, limit=limit, lease=consumer.lease
        )
        if consumer.batch is not None and deliveries:
            await self._fill(queue, deliveries, consumer.batch)
        return deliveries

    async def _fill(self, queue: QueueName, deliveries: list[Delivery], size: int) -> None:
        """Wait a while for a batch to become full."""
        until = time.monotonic() + self.consumer.batch_timeout.total_seconds()
        while len(deliveries) < size and not self._stopping and (left := until - time.monotonic()) > 0:
            deliveries += await self._broker.pull(
                queue,
                self.consumer.group,
                worker=self._worker,
                limit=size - len(deliveries),
                lease=self.consumer.lease,
                wait=timedelta(seconds=left),
            )

    def _start(self, deliveries: list[Delivery]) -> int:
        """Begin handling; return the number of slots taken."""
        if not deliveries:
            return 0
        self._delivered(deliveries)
        held = self._held.take(deliveries, self._terms, time.monotonic())
        if self.consumer.batch is not None:
            self._spawn(self._execution.run(held))
            return 1
        if self.consumer.is_async:
            self._line.add(held)
        else:
            for one in held:
                self._spawn(self._execution.run([one]))
        return len(held)

    def _spawn(self, execution: Coroutine[None, None, None]) -> None:
        self.running.add(asyncio.get_running_loop().create_task(execution, name="godwit handler"))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Free a slot. A done callback would do the same, one turn of the loop later."""
        self.running.discard(task)
        self._freed.set()

    async def balance(self) -> None:
        """Learn how many messages this member of the group may hold."""
        if await self._credits.refresh():
            self._freed.set()

    def nudge(self) -> None:
        """Look again at once."""
        self._nudged.set()
        self._listener.wake()

    def stop(self) -> None:
        """Pull no more."""
        self._stopping = True
        self.nudge()
        self._freed.set()

    async def finish(self, grace: timedelta) -> int:
        """Wait for running handlers, then hand back the rest; return how many were handed back."""
        until = time.monotonic() + grace.total_seconds()
        while under_way := self.running | self._line.beginning:
            await asyncio.wait(under_way, timeout=max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                break
        handed_back = self._line.hand_back()
        left = list(self.running)
        self._execution.stopping = True
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        self._execution.close()
        self._listener.close()
        return handed_back + len(left)
