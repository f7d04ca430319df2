"""What a manager does with its store besides scheduling: recording, status, effects that happen once, the outbox."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Final

from godwit.brokers.contract import Broker, SharedEntry
from godwit.core.background import Background, Run
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerError, StoreRequired
from godwit.core.journal.statuses import MessageStatus
from godwit.core.logs import get_logger
from godwit.core.messages.envelope import Envelope
from godwit.core.messages.message import Message
from godwit.core.names import MessageId
from godwit.core.periodic import PeriodicTasks
from godwit.core.settings import Settings
from godwit.core.shared_keys import STORE_SERVICES
from godwit.runtime.effects.once import DEFAULT_HOLD, DEFAULT_TTL, Once
from godwit.runtime.effects.outbox import IDLE, PAUSE, OutboxForwarder, OutboxWriter
from godwit.runtime.effects.status import recorded, status_of
from godwit.runtime.leader import RENEW_AFTER, LeaderClaim
from godwit.runtime.recorder.census import take_census
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from godwit.telemetry.metrics import QueueMetricsCollector

STAND_IN: Final = timedelta(seconds=2)
"""How often a process that does not run the services sees whether another does."""
TOLD: Final = timedelta(seconds=10)
"""The same where a worker tells: it sees the claim beside the pauses that it looks at anyway."""

log = get_logger(__name__)


class StoreServices:
    """The store's side of one manager."""

    def __init__(
        self,
        broker: Broker,
        store: Store | None,
        settings: Settings,
        *,
        owner: str,
        prepare: Callable[[Message], Envelope],
        metrics: QueueMetricsCollector | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._broker, self._store, self._settings, self.owner = broker, store, settings, owner
        self._prepare, self._metrics, self._clock = prepare, metrics, clock
        self._recorder: Recorder | None = None
        self._forwarder: OutboxForwarder | None = None
        self._free = asyncio.Event()
        self._told = False
        self._beside = Background(owner)

    def store(self, feature: str) -> Store:
        """Return the store that a feature needs."""
        if self._store is None:
            raise StoreRequired(feature)
        return self._store

    @property
    def recorder(self) -> Recorder:
        """Carries the journal into the store."""
        if self._recorder is None:
            self._recorder = Recorder(
                self._broker.journal,
                self.store("The recorder").messages,
                retention=self._settings.monitoring.retention,
                metrics=self._metrics,
                clock=self._clock,
            )
        return self._recorder

    @property
    def forwarder(self) -> OutboxForwarder:
        """Carries the outbox to the broker."""
        if self._forwarder is None:
            self._forwarder = OutboxForwarder(
                self.store("The outbox").outbox,
                self._broker.publish,
                is_known=self._is_known,
                window_of=lambda queue: self._settings.queue(queue).spec.dedup_window,
                clock=self._clock,
            )
        return self._forwarder

    def once(
        self,
        key: str,
        *,
        ttl: timedelta = DEFAULT_TTL,
        hold: timedelta = DEFAULT_HOLD,
        holder: str | None = None,
        connection: Any = None,
    ) -> Once:
        """Return an effect that happens once, to be made inside `async with`."""
        ledger = self.store("once").ledger
        return Once(ledger, key, ttl=ttl, hold=hold, holder=holder, connection=connection)

    def run_beside(self, name: str, run: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Keep something running beside handlers until it ends or the manager is closed."""
        self._beside.keep(name, run)

    async def close(self) -> None:
        """End what runs beside handlers."""
        await self._beside.close()

    def outbox(self, connection: Any) -> OutboxWriter:
        """Return an outbox in the application's own transaction."""
        return OutboxWriter(self.store("The outbox").outbox, connection, self._prepare)

    async def status(self, message_id: MessageId) -> MessageStatus | None:
        """Say where a message stands; what the journal has by now is in the answer."""
        return await status_of(self._broker, self.store("status"), message_id, clock=self._clock)

    async def recorded(self, message_id: MessageId) -> MessageStatus | None:
        """Say where a message stands that the broker has accepted; None for one that only a schedule knows."""
        return await recorded(self._broker, self.store("status"), message_id, self._clock)

    async def _is_known(self, message_id: MessageId) -> bool:
        return await self.recorded(message_id) is not None

    def notice(self) -> None:
        """Say that this process has changed something: a recorder here need not look for it."""
        if self._recorder is not None:
            self._recorder.notice()

    def learn(self, shared: Mapping[str, SharedEntry]) -> None:
        """Take note of what a worker of this process sees anyway: whether a process runs the store's services."""
        self._told = True
        if STORE_SERVICES not in shared:
            self._free.set()

    async def run(self) -> None:
        """Run the store's services until cancelled, for all processes of this broker, or stand by."""
        claim = LeaderClaim(self._broker.shared, STORE_SERVICES, self.owner)
        try:
            while True:
                self._free.clear()
                if await _holds(claim):
                    await self._keep(claim)
                with suppress(TimeoutError):
                    async with asyncio.timeout((TOLD if self._told else STAND_IN).total_seconds()):
                        await self._free.wait()
        finally:
            await claim.release()

    async def _keep(self, claim: LeaderClaim) -> None:
        """Record, forward and sweep as long as the claim is ours."""
        repeat = PeriodicTasks(self.owner).repeat
        steps: dict[str, Run] = {
            "recorder": self.recorder.run,
            "census": partial(repeat, "census", self._count, self._settings.consumer.heartbeat_interval),
            "outbox": partial(
                repeat, "outbox", self.forwarder.turn, IDLE, at_once=True, within=None, after_error=PAUSE
            ),
            "ledger sweep": partial(
                repeat, "ledger sweep", self._sweep, self._settings.scheduler.cleanup_interval, within=None
            ),
        }
        keeping = Background(self.owner)
        for name, step in steps.items():
            keeping.keep(name, step)
        try:
            while await _holds(claim, or_else=True):  # noqa: ASYNC110 - a claim has to be renewed in time
                await asyncio.sleep(RENEW_AFTER)
        finally:
            await keeping.close()

    async def _count(self) -> None:
        await take_census(self._broker, self.store("The recorder").messages, self._clock)

    async def _sweep(self) -> None:
        while await self.store("once").ledger.sweep():
            pass


async def _holds(claim: LeaderClaim, *, or_else: bool = False) -> bool:
    """Say whether the claim is ours; `or_else` while the broker does not answer: no process can take it then."""
    try:
        return await claim.hold()
    except BrokerError as error:
        log.warning("claim on the store's services unknown", error=str(error))
        return or_else
