"""Pulling for one consumer: as much as it has free slots, from its queues in turn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from datetime import timedelta
from typing import Final

from godwit.brokers.contract import NO_WAIT, Delivery, Place, Transport
from godwit.core.errors import BrokerClosed, GodwitError
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.core.names import QueueName
from godwit.runtime.delivery.dispatch import HandlerQueue
from godwit.runtime.delivery.empty_polls import EmptyPollCache
from godwit.runtime.delivery.execution import Execution
from godwit.runtime.delivery.gate import GateView
from godwit.runtime.delivery.group_types import GroupTypes
from godwit.runtime.delivery.in_flight import HeldDelivery, InFlight, Terms
from godwit.runtime.delivery.quarantine import Quarantine
from godwit.runtime.delivery.queue_order import WeightedQueueOrder
from godwit.runtime.worker.balance import Credits
from godwit.runtime.worker.consumer import Consumer

LONGEST_WAIT: Final = timedelta(seconds=30)
"""How long a consumer waits for a wake-up before it looks by itself, in case one was lost."""
GATED_WAIT: Final = timedelta(seconds=1)
PROBE_CHOICE: Final = 100
"""How many messages are looked at to find a fresh one for a probe; the others are handed back."""
_PAUSE_AFTER_ERROR: Final = 0.25
_HELD_BACK_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 2.0

log = get_logger(__name__)


class Puller:
    """The loop of one consumer in one worker."""

    def __init__(
        self,
        broker: Transport,
        consumer: Consumer,
        *,
        worker: str,
        held: InFlight,
        threads: Executor,
        terms: Terms,
        delivered: Callable[[Sequence[Delivery]], None],
        gate: GateView,
        empty_polls: EmptyPollCache,
        quarantine: Quarantine,
        credits_: Credits,
        group_types: GroupTypes,
    ) -> None:
        self.consumer = consumer
        self._credits, self._group_types = credits_, group_types
        self._taken_over: deque[HeldDelivery] = deque()
        """What other consumers of the group pulled for this one, and has not begun."""
        self.running: set[asyncio.Task[None]] = set()
        self._freed = asyncio.Event()
        self._broker = broker
        self._worker = worker
        self._held = held
        self._execution = Execution(
            consumer, threads, settle=terms.settle, ended=self._ended, pass_on=group_types.pass_on
        )
        self._handlers = HandlerQueue(self._execution.begin, self.running, ended=self._freed.set)
        self._terms = terms
        self._delivered = delivered
        self._gate = gate
        self._empty_polls = empty_polls
        self._quarantine = quarantine
        self._suspected: QueueName | None = None
        """Where a message waits for its last chance."""
        self._queue_order = WeightedQueueOrder(consumer.queues, consumer.weights, strict=consumer.strict)
        self._nudged = asyncio.Event()
        self._places = [(queue, consumer.group) for queue in consumer.queues]
        self._listener = broker.listen(self._places)
        self._stopping = False

    async def run(self) -> None:
        """Pull until stopped; an absent broker is waited for."""
        pause = _PAUSE_AFTER_ERROR
        trouble = RepeatedTrouble(log, "pulling waits for the broker", consumer=self.consumer.name)
        while not self._stopping:
            try:
                await self._turn()
                pause = _PAUSE_AFTER_ERROR
                trouble.over("pulling goes on")
            except BrokerClosed:
                return
            except GodwitError as error:
                trouble.came(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)

    async def _turn(self) -> None:
        consumer = self.consumer
        if self._suspected is not None:
            await self._last_chance(self._suspected)
            return
        await self._quarantine.may_begin()
        free = self._credits.now - len(self.running) - len(self._handlers)
        if free <= 0:
            self._freed.clear()
            await self._freed.wait()
            return
        self._listener.clear()
        self._nudged.clear()
        took, held_back = self._begin_taken_over(free), False
        free -= took
        for queue in self._queue_order.order():
            allowed = await self._gate.admit((queue, consumer.group), free) if free else 0
            if not self._group_types.has_room((queue, consumer.group), self):
                allowed = 0
            held_back = held_back or (bool(free) and not allowed)
            if allowed:
                held = await self._pull(queue, allowed)
                took += len(held)
                free -= self._start(held)
        if took or self._suspected is not None:
            await asyncio.sleep(0)  # let handlers begin before asking again
        elif not self._stopping:
            if held_back:
                # What is ready behind a pause or an open breaker ends the waiting at once, again and again.
                await self._rest()
            elif consumer.rate is None:  # what is fetched ahead would not wait for a token
                self._listener.expect(worker=self._worker, limit=consumer.batch or free, lease=consumer.lease)
            await self._wait()

    def take_over(self, delivery: Delivery) -> None:
        """Handle what another consumer of the group pulled, as soon as a slot is free."""
        self._taken_over += self._hold([delivery])
        self._freed.set()
        self.nudge()

    @property
    def is_behind(self) -> bool:
        """Whether as much waits for this consumer as it handles at once."""
        return len(self._taken_over) >= self._credits.now * (self.consumer.batch or 1)

    def _begin_taken_over(self, free: int) -> int:
        """Begin what was taken over; return the number of slots taken."""
        taken, size = 0, self.consumer.batch or 1
        while self._taken_over and taken < free:
            held = [self._taken_over.popleft() for _ in range(min(size, len(self._taken_over)))]
            for one in held:
                one.started = time.monotonic()  # the time limit is for handling, not for waiting
            taken += self._start(held)
        if taken:
            self._group_types.made_room(self)
        return taken

    async def _wait(self) -> None:
        """Wait for something to pull; when nothing comes, one consumer of a place looks for all of this process."""
        while not self._stopping:
            longest = LONGEST_WAIT if self._gate.is_open else self._gate.opens_within(GATED_WAIT)
            self._gate.rest(longest)
            if await self._listener.wait(longest) or self._empty_polls.take_turn(self._places, longest):
                return

    async def _rest(self) -> None:
        """Wait a moment, or until `wake` is called."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_HELD_BACK_PAUSE):
                await self._nudged.wait()

    def _without_suspects(self, queue: QueueName, deliveries: list[Delivery]) -> list[Delivery]:
        """Hand back what is on its last chance: it is pulled again when it can be handled alone."""
        suspects = [one for one in deliveries if one.crashes >= self.consumer.last_chance]
        if not suspects:
            return deliveries
        self._suspected = queue
        for held in self._hold(suspects):
            held.hand_back()
        return [one for one in deliveries if one.crashes < self.consumer.last_chance]

    def _hold(self, deliveries: list[Delivery]) -> list[HeldDelivery]:
        return self._held.take(deliveries, self._terms, time.monotonic())

    async def _last_chance(self, queue: QueueName) -> None:
        """Handle one message of a queue while this worker holds nothing else."""
        async with self._quarantine.alone():
            self._suspected = None
            place = (queue, self.consumer.group)
            if not self._stopping and await self._gate.admit(place, 1):
                self._start(self._hold(await self._lease(place, 1)))

    async def _pull(self, queue: QueueName, free: int) -> list[HeldDelivery]:
        size = self.consumer.batch
        if size is None:
            return await self._take(queue, free)
        batch = await self._take(queue, size)
        if batch:
            await self._fill(queue, batch, size)
        return batch

    async def _take(self, queue: QueueName, limit: int, wait: timedelta = NO_WAIT) -> list[HeldDelivery]:
        """Pull once, and hold what may be handled beside other messages: from now on its leases are renewed."""
        place = (queue, self.consumer.group)
        deliveries = await self._lease(place, limit, wait)
        if not deliveries:
            self._empty_polls.found_nothing(place)
            return []
        return self._hold(self._without_suspects(queue, deliveries))

    async def _lease(self, place: Place, limit: int, wait: timedelta = NO_WAIT) -> list[Delivery]:
        """Pull once, as much as the declared rate allows, and count what came."""
        lease = self.consumer.lease
        limit = await self._gate.tokens(place, limit)
        if not limit:
            return []
        look_at = max(limit, PROBE_CHOICE) if self._gate.is_probing(place) else limit
        deliveries = await self._broker.pull(*place, worker=self._worker, limit=look_at, lease=lease, wait=wait)
        if len(deliveries) > limit:
            deliveries = self._freshest(deliveries, limit)
        await self._gate.begun(place, len(deliveries))
        if deliveries:
            self._delivered(deliveries)
        return deliveries

    def _freshest(self, deliveries: list[Delivery], limit: int) -> list[Delivery]:
        """Keep what was delivered least often: a bad message that came back must not decide about the downstream."""
        chosen = sorted(deliveries, key=lambda one: one.attempt)
        for held in self._hold(chosen[limit:]):
            held.hand_back()
        return chosen[:limit]

    async def _fill(self, queue: QueueName, batch: list[HeldDelivery], size: int) -> None:
        """Wait a while for a batch to become full."""
        until = time.monotonic() + self.consumer.batch_timeout.total_seconds()
        try:
            while len(batch) < size and self._may_fill() and (left := until - time.monotonic()) > 0:
                batch += await self._take(queue, size - len(batch), timedelta(seconds=left))
        except GodwitError as error:
            log.warning("a batch begins before it is full", consumer=self.consumer.name, error=str(error))
        except BaseException:
            for held in batch:
                held.hand_back()
            raise
        began = time.monotonic()
        for held in batch:
            held.started = began  # the time limit is for handling, not for waiting

    def _may_fill(self) -> bool:
        """Say whether to wait for more: what was just handed back as suspicious would come again at once."""
        return not self._stopping and self._suspected is None

    def _start(self, held: list[HeldDelivery]) -> int:
        """Begin handling; return the number of slots taken."""
        if not held:
            return 0
        if self.consumer.batch is not None:
            self._spawn(self._execution.run(held))
            return 1
        if self.consumer.is_async:
            self._handlers.add(held)
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
        self._listener.close()  # nothing is fetched ahead any more
        self._freed.set()

    async def finish(self, grace: timedelta) -> int:
        """Wait for running handlers, then hand back the rest; return how many were handed back."""
        until = time.monotonic() + grace.total_seconds()
        while under_way := self.running | self._handlers.beginning:
            await asyncio.wait(under_way, timeout=max(0.0, until - time.monotonic()))
            if time.monotonic() >= until:
                break
        handed_back = self._handlers.hand_back() + len(self._taken_over)
        for held in self._taken_over:
            held.hand_back()
        self._taken_over.clear()
        left = list(self.running)
        self._execution.stopping = True
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        self._execution.close()
        self._listener.close()
        return handed_back + len(left)
