"""A worker: one process's consumers, their settlements, renewals, heartbeats and maintenance."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any, Final

import msgspec

from godwit.brokers.contract import Broker, Delivery, Place, Settlement, SharedEntry
from godwit.core.background import Background
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, GodwitError, InvalidSetting
from godwit.core.failures.breaker import BreakerRule
from godwit.core.failures.judgement import Judgement, judge
from godwit.core.failures.retry import RetryPolicy
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.core.names import AckId
from godwit.core.periodic import PeriodicTasks
from godwit.core.settings import DEFAULTS
from godwit.core.shared_keys import MAINTENANCE
from godwit.runtime.delivery.empty_polls import EmptyPollCache
from godwit.runtime.delivery.gate import GateView, SharedGate
from godwit.runtime.delivery.group_types import GroupTypes
from godwit.runtime.delivery.in_flight import InFlight, Terms
from godwit.runtime.delivery.puller import Puller
from godwit.runtime.delivery.quarantine import Quarantine
from godwit.runtime.delivery.rate_limiter import limiters_of
from godwit.runtime.delivery.renewer import Renewer
from godwit.runtime.delivery.settler import Settler
from godwit.runtime.threads import in_daemon_thread
from godwit.runtime.worker.balance import Credits
from godwit.runtime.worker.consumer import Consumer
from godwit.runtime.worker.counts import WorkerCounts
from godwit.runtime.worker.heartbeat import ConsumerInstance, Heartbeat, Served, instances
from godwit.runtime.worker.maintenance import MAINTAIN_EVERY, Maintenance
from godwit.runtime.worker.shutdown import Shutdown
from godwit.runtime.worker.status import WorkerStatus
from godwit.runtime.worker.watchdog import PATIENCE, Watchdog, Watched
from godwit.runtime.worker.worker_log import SUMMARY_EVERY, WorkerLog
from godwit.telemetry.metrics import QueueMetricsCollector

REFRESH_EVERY: Final = timedelta(seconds=1)
REFRESH_IDLE_EVERY: Final = timedelta(seconds=1.5)
"""With nothing in hand; a pause still takes effect within two seconds."""
BRIEFLY: Final = timedelta(seconds=0.5)
ANSWER_WITHIN: Final = timedelta(seconds=3)
"""A broker that takes longer to tell of pauses and breakers is taken for absent."""

log = get_logger(__name__)


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What all consumers of a worker share."""

    grace: timedelta = DEFAULTS.consumer.shutdown_grace
    heartbeat_interval: timedelta = DEFAULTS.consumer.heartbeat_interval
    breaker: BreakerRule = DEFAULTS.breaker


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
        changed: Callable[[], None] = lambda: None,
        learned: Callable[[Mapping[str, SharedEntry]], None] = lambda _: None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
    ) -> None:
        self.name = name or worker_name()
        self._broker = broker
        self._settings = settings or WorkerSettings()
        self._changed, self._learned = changed, learned
        self.check_open: Callable[[], object] = lambda: None
        """Raises before the worker begins when the manager that made it is closed."""
        self._clock = clock
        self._random = random or Random()
        self._held = InFlight()
        self._empty_polls = EmptyPollCache()
        self._quarantine = Quarantine(lambda: not self._held.is_renewed(time.monotonic()))
        self._settler = Settler(broker, settled=self._settled)
        self._maintenance = Maintenance(broker, self.name)
        places = [(queue, consumer.group) for consumer in consumers for queue in consumer.queues]
        protected = {(queue, one.group): one.breaker for one in consumers if one.breaker for queue in one.queues}
        self._gate = SharedGate(
            broker.shared,
            places,
            owner=self.name,
            rule=self._settings.breaker,
            clock=clock,
            breaker_of=protected,
            limiters=limiters_of(consumers, broker.shared, clock=clock, random=self._random),
        )
        self.counts = WorkerCounts(places, self._gate.breakers, metrics or QueueMetricsCollector())
        self._log = WorkerLog(self.name, consumers, self.counts, held=lambda: len(self._held))
        interval = self._settings.heartbeat_interval
        self._group_types = GroupTypes(
            consumers, worker=self.name, members=self._members, interval=interval, clock=clock
        )
        tallies = self.counts.tallies
        self._status = WorkerStatus(
            Heartbeat(
                broker.shared,
                self.name,
                tallies,
                interval=interval,
                clock=clock,
                served={
                    place: Served(
                        concurrency=slots,
                        breaker=self._gate.breakers[place].name,
                        types=self._group_types.served.get(place),
                    )
                    for place, slots in _slots(consumers).items()
                },
            ),
            consumers,
            worker=self.name,
            metrics=self.counts.metrics,
            paused=self._gate.paused,
            trouble=lambda: self.watchdog.trouble,
        )
        self._threads = ThreadPoolExecutor(
            max_workers=max(1, sum(one.concurrency for one in consumers if not one.is_async)),
            thread_name_prefix="godwit handler",
        )
        self._consumers = tuple(consumers)
        self._pullers: list[Puller] = []
        self.watchdog = Watchdog([])
        self._broker_away = False
        self._unknown = RepeatedTrouble(log, "shared state unknown", worker=self.name)
        shortest = min((consumer.lease for consumer in consumers), default=timedelta(seconds=15))
        self._renewer = Renewer(self._held, broker.extend_now, every=shortest / 3)
        self._shutdown = Shutdown()
        self._periodic = PeriodicTasks(self.name, random=self._random, unanswered=self._no_answer)

    def _puller(self, consumer: Consumer, gate_view: GateView, credits_: Credits) -> Puller:
        def decide(error: BaseException, delivery: Delivery) -> Judgement:
            place = (delivery.queue, delivery.group)
            judgement = judge(
                error,
                failures=delivery.failures,
                policy=_policy(delivery, consumer),
                now_ms=self._clock.now_ms(),
                jitter=self._random.random(),
                hook=consumer.classify,
                postponements=delivery.postponements,
                errors=delivery.errors,
                excuse=self._gate.breakers[place].judged,
            )
            if judgement.pause is not None:
                self._gate.limit_rate(place, judgement.pause, judgement.error.message)
            return judgement

        return Puller(
            self._broker,
            consumer,
            worker=self.name,
            held=self._held,
            threads=self._threads,
            terms=Terms(
                lease=consumer.lease,
                renewed_for=consumer.time_limit + self._settings.grace,
                settle=self._settler.add,
                judge=decide,
            ),
            delivered=self.counts.delivered,
            gate=gate_view,
            empty_polls=self._empty_polls,
            quarantine=self._quarantine,
            credits_=credits_,
            group_types=self._group_types,
        )

    def _watched(self, consumer: Consumer) -> Watched:
        gate_view = GateView(self._gate)
        credits_ = Credits(consumer, self.name, self._members)
        puller = self._puller(consumer, gate_view, credits_)
        self._pullers.append(puller)
        self._group_types.add(puller)
        return Watched(
            puller.run,
            name=consumer.name,
            passed=lambda: gate_view.passed,
            rests_until=lambda: gate_view.rests_until,
            has_room=lambda: self._quarantine.is_open and len(puller.running) < credits_.now,
            patience=PATIENCE + (consumer.batch_timeout if consumer.batch is not None else timedelta(0)),
        )

    async def run(self) -> None:
        """Work until `stop`, then finish what fits in the grace time and hand the rest back."""
        self.check_open()
        if not self._consumers:
            raise InvalidSetting("consumers", (), 'at least one: decorate a handler with @mq.consumer("orders")')
        await self._refresh()
        self.watchdog = Watchdog([self._watched(consumer) for consumer in self._consumers])
        self._renewer.start()
        self.watchdog.start()
        care = Background(self.name)
        for name, step in self._care():
            care.keep(name, step)
        self._log.started()
        try:
            await self._shutdown.called()
        finally:
            self._log.stopping(self._settings.grace)
            for puller in self._pullers:
                puller.stop()
            await self._shutdown.unless_forced(self.watchdog.stop(), self._longest_turn())
            self.watchdog.cancel()
            handed_back = await self._finish()
            care.cancel()
            within = ANSWER_WITHIN if await self._settle_the_rest() else BRIEFLY
            stopping = in_daemon_thread(self._renewer.stop, name="godwit renewer's end")
            await self._shutdown.unless_forced(stopping, within)
            self._threads.shutdown(wait=False, cancel_futures=True)
            await self._shutdown.unless_forced(self._status.goodbye(), within)
            await self._shutdown.unless_forced(self._maintenance.release(), within)
            self._log.stopped(handed_back)

    async def _members(self, queue: str) -> list[ConsumerInstance]:
        return await instances(self._broker.shared, self._clock, queue)

    async def _beat(self) -> None:
        """Say how this worker does, and learn who else is there to share the work with."""
        await self._status.beat()
        await self._group_types.refresh()
        for puller in self._pullers:
            await puller.balance()
        if self._maintenance.is_ours and self._broker.care_is_shared:  # one worker logs for all of them
            self._log.peers(await instances(self._broker.shared, self._clock), self._clock.now_ms())

    def _care(self) -> Iterator[tuple[str, Callable[[], Coroutine[Any, Any, None]]]]:
        """Give what a worker does beside pulling."""
        repeat, maintenance = self._periodic.repeat, self._maintenance
        yield "watchdog", self.watchdog.run
        yield (
            "maintenance",
            partial(repeat, "maintenance", maintenance.tick, MAINTAIN_EVERY, when=maintenance.our_turn),
        )
        yield "gate", partial(repeat, "gate", self._refresh, REFRESH_EVERY)
        yield "summary", partial(repeat, "summary", self._log.summary, SUMMARY_EVERY)
        yield "heartbeat", partial(repeat, "heartbeat", self._beat, self._settings.heartbeat_interval, at_once=True)
        for number, consumer in enumerate(self._consumers):
            if consumer.health.ask is not None:
                ask = partial(self._status.ask, number)
                yield "health check", partial(repeat, "health check", ask, consumer.health.interval)

    def _longest_turn(self) -> timedelta:
        """Return how long a consumer may take to notice that it shall stop: one may be filling a batch."""
        batches = [consumer.batch_timeout for consumer in self._consumers if consumer.batch is not None]
        return max(batches, default=timedelta(0)) + ANSWER_WITHIN

    async def _finish(self) -> int:
        """Give handlers their grace time, unless told to leave at once; return how many were handed back."""
        finishing = asyncio.gather(*(puller.finish(self._settings.grace) for puller in self._pullers))
        if await self._shutdown.unless_forced(finishing):
            return sum(finishing.result())
        return sum(await asyncio.gather(*(puller.finish(timedelta(0)) for puller in self._pullers)))

    async def _settle_the_rest(self) -> bool:
        """Settle what ended, without waiting for an absent broker beyond the grace time; say whether it answered."""
        answered = await self._shutdown.unless_forced(self._settler.drain(), max(self._settings.grace, ANSWER_WITHIN))
        if self._held:
            log.warning("left with work unsettled: it is delivered again", worker=self.name, count=len(self._held))
        return answered

    def stop(self) -> None:
        """Stop; a second call leaves without waiting for handlers."""
        self._shutdown.call()

    def is_idle(self) -> bool:
        """Say whether no handler runs and everything is settled."""
        return not self._held and not any(puller.running for puller in self._pullers)

    def held_back_until_ms(self) -> int | None:
        """Return when an open breaker may be tried or a rate limit ends, or None when there is none."""
        return self._gate.held_back_until_ms()

    def nudge(self) -> None:
        """Let every consumer look again at once: the clock was moved, or a pause was lifted."""
        for puller in self._pullers:
            puller.nudge()

    async def _refresh(self) -> timedelta:
        """Learn of pauses and breakers; return when to ask again. Without the broker nothing can be pulled anyway."""
        try:
            async with asyncio.timeout(ANSWER_WITHIN.total_seconds()):
                lifted = await self._gate.refresh()
        except BrokerClosed:
            raise
        except (GodwitError, TimeoutError) as error:
            self._broker_away = True
            self._unknown.came(error)
            return REFRESH_EVERY
        self._maintenance.learn(self._gate.seen.get(MAINTENANCE))
        self._learned(self._gate.seen)
        if self._broker_away:
            self._broker_away = False
            self._unknown.over("the broker answers again")
            self.watchdog.broker_returned()
            lifted = True
        if lifted:
            self.nudge()
        await self._status.beat_if_changed()
        return REFRESH_IDLE_EVERY if self._gate.is_open and self.is_idle() else REFRESH_EVERY

    def _no_answer(self) -> None:
        self._broker_away = True

    async def _settled(self, settlements: Sequence[Settlement], refused: Sequence[AckId]) -> None:
        ended = self._held.drop(settlements)
        if refused:
            gone = frozenset(refused)
            self.counts.refused([delivery for delivery in ended if delivery.ack_id in gone])
            ended = [delivery for delivery in ended if delivery.ack_id not in gone]
            settlements = [settlement for settlement in settlements if settlement.ack_id not in gone]
        self.counts.settled(ended, settlements, self._clock.now_ms())
        self._log.settled(ended, settlements)
        await self._gate.publish()
        self._changed()


def _policy(delivery: Delivery, consumer: Consumer) -> RetryPolicy:
    """Return the message's own retry policy, else the consumer's or the queue's."""
    try:
        own = delivery.open().retry_policy
    except (msgspec.DecodeError, UnicodeDecodeError):
        own = None
    return own or consumer.policy_for(delivery.queue)


def _slots(consumers: Sequence[Consumer]) -> dict[Place, int]:
    """Return how many messages a worker handles at once, by queue and group."""
    slots: dict[Place, int] = {}
    for consumer in consumers:
        for queue in consumer.queues:
            place = (queue, consumer.group)
            slots[place] = slots.get(place, 0) + consumer.concurrency
    return slots
