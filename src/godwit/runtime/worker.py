"""A worker: one process's consumers, their settlements, renewals, heartbeats and maintenance."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from random import Random
from typing import Any, Final

import msgspec

from godwit.brokers.contract import Broker, Delivery, Settlement
from godwit.core.breaker import BreakerRule
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, GodwitError
from godwit.core.handling import Judgement, judge
from godwit.core.logs import get_logger
from godwit.core.names import AckId
from godwit.core.retry import RetryPolicy
from godwit.runtime.accounts import Accounts
from godwit.runtime.consumer import Consumer
from godwit.runtime.gate import Gate
from godwit.runtime.heartbeat import Heartbeat, InstanceStatus
from godwit.runtime.held import HeldTable
from godwit.runtime.pulling import Puller
from godwit.runtime.quarantine import Quarantine
from godwit.runtime.renewer import Renewer
from godwit.runtime.settler import Settler
from godwit.telemetry.metrics import QueueMetricsCollector

MAINTAIN_EVERY: Final = timedelta(seconds=1)
REFRESH_EVERY: Final = timedelta(seconds=1)

log = get_logger(__name__)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all consumers of a worker share."""

    grace: timedelta = timedelta(seconds=10)
    heartbeat_interval: timedelta = timedelta(seconds=5)
    breaker: BreakerRule = BreakerRule()


def worker_name() -> str:
    """Return a name that no other worker has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


class Worker:
    """Runs consumers against a broker until it is stopped."""

    def __init__(
        self,
        broker: Broker,
        consumers: Sequence[Consumer],
        *,
        name: str | None = None,
        settings: WorkerSettings | None = None,
        metrics: QueueMetricsCollector | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.name = name or worker_name()
        self._broker = broker
        self._settings = settings or WorkerSettings()
        self._clock = clock
        self._random = random or Random()
        self._held = HeldTable()
        self._quarantine = Quarantine(lambda: not self._held)
        self._settler = Settler(broker, settled=self._settled)
        places = [(queue, consumer.group) for consumer in consumers for queue in consumer.queues]
        self._gate = Gate(broker.shared, places, owner=self.name, rule=self._settings.breaker, clock=clock)
        self.accounts = Accounts(places, self._gate.breakers, metrics or QueueMetricsCollector())
        interval = self._settings.heartbeat_interval
        tallies = self.accounts.tallies
        self._heartbeat = Heartbeat(broker.shared, self.name, tallies, interval=interval, clock=clock)
        self._threads = ThreadPoolExecutor(
            max_workers=max(1, sum(one.concurrency for one in consumers if not one.is_async)),
            thread_name_prefix="godwit handler",
        )
        self._consumers = tuple(consumers)
        self._pullers: list[Puller] = []
        shortest = min((consumer.lease for consumer in consumers), default=timedelta(seconds=15))
        self._renewer = Renewer(self._held, broker.extend_now, every=shortest / 3)
        self._stop = asyncio.Event()
        self._leave = asyncio.Event()

    def _puller(self, consumer: Consumer) -> Puller:
        def decide(error: BaseException, delivery: Delivery) -> Judgement:
            return judge(
                error,
                failures=delivery.failures,
                policy=_policy(delivery, consumer),
                now_ms=self._clock.now_ms(),
                jitter=self._random.random(),
                hook=consumer.classify,
            )

        return Puller(
            self._broker,
            consumer,
            worker=self.name,
            held=self._held,
            threads=self._threads,
            settle=self._settler.add,
            judge=decide,
            delivered=self.accounts.delivered,
            gate=self._gate,
            quarantine=self._quarantine,
            grace=self._settings.grace,
        )

    async def run(self) -> None:
        """Work until `stop`, then finish what fits in the grace time and hand the rest back."""
        await self._refresh()
        self._pullers = [self._puller(consumer) for consumer in self._consumers]
        self._renewer.start()
        loops = [asyncio.create_task(puller.run(), name=puller.consumer.name) for puller in self._pullers]
        care = [
            asyncio.create_task(self._regularly(self._broker.maintain, MAINTAIN_EVERY), name="godwit maintenance"),
            asyncio.create_task(self._regularly(self._refresh, REFRESH_EVERY), name="godwit gate"),
            asyncio.create_task(
                self._regularly(self._beat, self._settings.heartbeat_interval), name="godwit heartbeat"
            ),
        ]
        await self._beat()
        try:
            await self._stop.wait()
        finally:
            for puller in self._pullers:
                puller.stop()
            await asyncio.gather(*loops, return_exceptions=True)
            handed_back = await self._finish()
            for task in care:
                task.cancel()
            await self._settler.drain()
            self._renewer.stop()
            self._threads.shutdown(wait=False, cancel_futures=True)
            await self._say_goodbye()
            log.info("worker stopped", worker=self.name, processed=self.accounts.processed, handed_back=handed_back)

    async def _finish(self) -> int:
        """Give handlers their grace time, unless told to leave at once; return how many were handed back."""
        finishing = asyncio.gather(*(puller.finish(self._settings.grace) for puller in self._pullers))
        leaving = asyncio.ensure_future(self._leave.wait())
        either: list[asyncio.Future[Any]] = [finishing, leaving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if finishing.done():
            return sum(finishing.result())
        finishing.cancel()
        return sum(await asyncio.gather(*(puller.finish(timedelta(0)) for puller in self._pullers)))

    def stop(self) -> None:
        """Stop; a second call leaves without waiting for handlers."""
        if self._stop.is_set():
            self._leave.set()
        self._stop.set()

    def is_idle(self) -> bool:
        """Say whether no handler runs and everything is settled."""
        return not self._held and not any(puller.running for puller in self._pullers)

    def held_back_until_ms(self) -> int | None:
        """Return when an open breaker may be tried, or None when none is open."""
        return min(
            (until for breaker in self._gate.breakers.values() if (until := breaker.open_until_ms)), default=None
        )

    def nudge(self) -> None:
        """Let every consumer look again at once: the clock was moved, or a pause was lifted."""
        for puller in self._pullers:
            puller.nudge()

    async def _regularly(self, step: Callable[[], Awaitable[object]], every: timedelta) -> None:
        """Repeat a step; all workers do so, a little apart, and doing it often changes nothing."""
        while True:
            await asyncio.sleep(every.total_seconds() * (0.75 + self._random.random() / 2))
            try:
                await step()
            except BrokerClosed:
                return
            except GodwitError as error:
                log.warning("a regular step waits for the broker", worker=self.name, error=str(error))

    async def _refresh(self) -> None:
        """Learn of pauses and breakers; without the broker nothing can be pulled anyway."""
        try:
            if await self._gate.refresh():
                self.nudge()
        except BrokerClosed:
            raise
        except GodwitError as error:
            log.warning("shared state unknown", worker=self.name, error=str(error))

    async def _beat(self) -> None:
        paused = [place for place in self.accounts.tallies if self._gate.paused(place)]
        try:
            await self._heartbeat.beat(InstanceStatus.ACTIVE, paused)
        except BrokerClosed:
            raise
        except GodwitError as error:
            log.warning("heartbeat not written", worker=self.name, error=str(error))

    async def _say_goodbye(self) -> None:
        try:
            await self._heartbeat.beat(InstanceStatus.INACTIVE, detail="stopped")
        except GodwitError as error:
            log.warning("heartbeat not written", worker=self.name, error=str(error))

    async def _settled(self, settlements: Sequence[Settlement], refused: Sequence[AckId]) -> None:
        lost = frozenset(refused)
        ended = [(self._held.drop(settlement.ack_id), settlement) for settlement in settlements]
        await self.accounts.settled(
            [(held.delivery, settlement) for held, settlement in ended if settlement.ack_id not in lost],
            [held.delivery for held, settlement in ended if settlement.ack_id in lost],
            self._clock.now_ms(),
        )


def _policy(delivery: Delivery, consumer: Consumer) -> RetryPolicy:
    """Return the message's own retry policy, else the consumer's or the queue's."""
    try:
        own = delivery.open().retry_policy
    except (msgspec.DecodeError, UnicodeDecodeError):
        own = None
    return own or consumer.policy_for(delivery.queue)
