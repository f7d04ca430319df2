"""MessageQueueManager: the one object an application holds."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, Never, Self

from godwit import __version__, config
from godwit.admin.control import QueueControl
from godwit.admin.dead_letters import DeadLetterQueueHandler
from godwit.brokers.arguments import check_app_version
from godwit.brokers.contract import NO_WAIT, Broker, Delivery
from godwit.brokers.urls import connect_for
from godwit.core.background import Background
from godwit.core.clock import SYSTEM_CLOCK, Clock
from godwit.core.errors import BrokerClosed, BrokerError, InvalidSetting, NotOpen, UnknownArgument
from godwit.core.journal.external_journal import KeepsJournalElsewhere
from godwit.core.journal.statuses import MessageStatus
from godwit.core.logs import get_logger
from godwit.core.messages.message import Message
from godwit.core.messages.routing import Router, Transform
from godwit.core.messages.schemas import Schemas
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName
from godwit.core.periodic import PeriodicTasks
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.core.settings import Settings
from godwit.runtime.breaker import QueueCircuitBreaker
from godwit.runtime.effects.once import DEFAULT_HOLD, DEFAULT_TTL, Once
from godwit.runtime.effects.outbox import OutboxWriter
from godwit.runtime.effects.services import StoreServices
from godwit.runtime.manual import ManualDeliveries
from godwit.runtime.monitoring import Monitoring
from godwit.runtime.producer.producer import TICK, QueueProducer
from godwit.runtime.scheduler.recovery import accepted_by
from godwit.runtime.scheduler.scheduler import MessageScheduler
from godwit.runtime.sync_bridge import Opened
from godwit.runtime.worker.heartbeat import ConsumerInstance
from godwit.runtime.worker.registration import ConsumerRegistration
from godwit.runtime.worker.registry import Registry
from godwit.runtime.worker.worker import worker_name
from godwit.store.contract import Store
from godwit.store.urls import connect as connect_store
from godwit.sync_manager import SyncManager
from godwit.telemetry.checks import answers
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.sinks import Sink
from godwit.telemetry.tracing import open_tracer

log = get_logger(__name__)


class MessageQueueManager(ConsumerRegistration):
    """Publishes, pulls and settles messages, and knows the consumers a worker shall run.

    Use it with `async with`; synchronous callers use `sync`. Nothing is connected before that.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        store: Store | str | None = None,
        settings: Settings | None = None,
        source: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        random: Random | None = None,
        **unknown: Never,
    ) -> None:
        for argument in unknown:
            raise UnknownArgument("MessageQueueManager()", argument, _ARGUMENTS)
        if isinstance(broker, str):
            raise InvalidSetting("broker", broker, f"a broker; for a URL MessageQueueManager.from_url({broker!r})")
        store = connect_store(store) if isinstance(store, str) else store
        self.broker = broker
        self.store = store
        self.settings = settings or Settings()
        broker.app_version = check_app_version(self.settings.app_version) or broker.app_version
        self.metrics = QueueMetricsCollector(window=self.settings.monitoring.alert_window)
        self.tracer = open_tracer(enabled=self.settings.monitoring.tracing, broker_url=self.settings.broker_url)
        self.schemas = Schemas()
        self._name = source or worker_name()
        self._clock = clock
        self._random = random or Random()
        self._registry = Registry(self.settings, checks=self.schemas.checks)
        self._transforms: dict[QueueName, Transform] = {}
        self._manual = ManualDeliveries(
            broker,
            worker=self._name,
            policy=lambda queue, group: self.settings.queue(queue).retry_policy_for(group),
            metrics=self.metrics,
            clock=clock,
            random=self._random,
        )
        self._producer: QueueProducer | None = None
        self._background = Background("manager")
        self.monitoring = Monitoring(broker, self.settings, metrics=self.metrics, version=__version__, clock=clock)
        self.monitor = self.monitoring.monitor
        self.dead_letters = DeadLetterQueueHandler(broker, check=self.schemas.check, actor=self._name, clock=clock)
        self.control = QueueControl(broker, by=self._name, clock=clock)
        self.scheduler = MessageScheduler(
            broker,
            None if store is None else store.schedules,
            prepare=lambda message: self.producer.prepare(message),  # noqa: PLW0108 # there is none before it is open
            publish=lambda message, deliver_at: self.enqueue(message, scheduled_at=deliver_at),
            settings=self.settings.scheduler,
            spec_of=lambda queue: self.settings.queue(queue).spec,
            name=self._name,
            retention=self.settings.monitoring.retention,
            ask=None if store is None else accepted_by(store.messages),
            status_of=lambda message_id: self.store_services.recorded(message_id),  # noqa: PLW0108 # they are made below
            metrics=self.metrics,
            clock=clock,
        )
        if store is not None:
            self.monitor.register_check("database", answers("database", store.messages.positions), own=True)
            self.monitor.register_check("scheduler", self.scheduler.check())
            if isinstance(broker, KeepsJournalElsewhere):
                broker.keep_journal(store.journal)
        self.store_services = StoreServices(
            broker,
            store,
            self.settings,
            owner=self._name,
            prepare=lambda message: self.producer.prepare(message),  # noqa: PLW0108 # there is none before it is open
            metrics=self.metrics,
            clock=clock,
        )
        self.opened = Opened()
        self.breaker = QueueCircuitBreaker(None, "publish", owner=self._name, rule=self.settings.breaker, clock=clock)
        self.sync = SyncManager(self)

    @classmethod
    def from_url(cls, url: str | None = None, **options: Any) -> Self:
        """Return a manager for a broker's URL; without one the environment chooses, else the file godwit.db."""
        return cls.from_settings(config.load(arguments={} if url is None else {"broker_url": url}), **options)

    @classmethod
    def from_config(
        cls, file: str | Path, *, environment: Mapping[str, str] | None = None, url: str | None = None, **options: Any
    ) -> Self:
        """Return a manager for a godwit.toml."""
        settings = config.load(file, environment=environment, arguments={} if url is None else {"broker_url": url})
        return cls.from_settings(settings, **options)

    @classmethod
    def from_settings(cls, settings: Settings, **options: Any) -> Self:
        """Return a manager for the broker and the store that the configuration names; neither is opened yet."""
        if not isinstance(settings, Settings):
            raise InvalidSetting("settings", settings, "what godwit.config.load() returns; for a URL, from_url()")
        if settings.store_url is not None:
            options.setdefault("store", connect_store(settings.store_url))
        return cls(connect_for(settings), settings=settings, **options)

    # Opening and closing

    async def __aenter__(self) -> Self:
        """Connect, and declare the queues of the configuration and of the consumers."""
        if self.opened.here():  # several processes have what was made before their fork
            self.store_services.owner = name = worker_name()
            self.scheduler.claim_apart(name)
        named_by = self.settings.origins.get("broker_url", "")
        if named_by.startswith("env ") and named_by != "env GODWIT_URL":  # perhaps meant for another library
            shown = config.without_password(self.settings.broker_url)
            log.info("a variable of the environment names the broker", broker=shown, variable=named_by[4:])
        try:
            await self.broker.__aenter__()
        except BaseException:
            self.opened.no_more()
            raise
        try:
            await self._open()
        except BaseException:
            self.opened.no_more()
            try:
                await self.monitoring.close()
            finally:
                await self.broker.close()
            raise
        return self

    async def _open(self) -> None:
        await self._registry.declare(self.broker, bodies=self.store is not None)
        await self.monitoring.start()
        self._producer = QueueProducer(
            self.broker,
            source=self._name,
            router=Router(self.settings.queues, default_queue=self.settings.default_queue),
            schemas=self.schemas,
            transforms=self._transforms,
            metrics=self.metrics,
            tracer=self.tracer,
            clock=self._clock,
            random=self._random,
        )
        self._background.keep(
            "producer entry",
            partial(PeriodicTasks("manager").repeat, "producer entry", self._producer.tick, TICK, at_once=True),
        )

    async def __aexit__(self, *exc: object) -> None:
        """Refuse new messages, finish those under way, disconnect."""
        await self.close()

    async def close(self) -> None:
        """Refuse new messages from now on, finish those under way, disconnect."""
        self._background.cancel()
        self.opened.no_more()
        async with AsyncExitStack() as ending:  # the rest is closed too when a step fails, or the caller is cancelled
            ending.push_async_callback(self.broker.close)
            if self.store is not None:
                ending.push_async_callback(self.store.close)
            ending.push_async_callback(self.store_services.close)
            ending.push_async_callback(self.monitoring.close)
            if self._producer is not None:
                await self._producer.close()

    @property
    def producer(self) -> QueueProducer:
        """The producer, while the manager is open: not from the moment that closing began."""
        producer = self._producer
        if producer is None:
            raise NotOpen
        if producer.closed:
            raise BrokerClosed("The manager")
        return producer

    async def declare(self, queue: str | QueueSpec, *groups: str | GroupSpec) -> None:
        """Create a queue and its groups, or change their settings.

        What is given by name has the configuration's settings; without groups the queue gets those it has there.
        """
        await self._registry.declare_one(self.broker, queue, groups, bodies=self.store is not None)

    # Publishing

    async def enqueue(
        self,
        message: Message,
        *,
        scheduled_at: datetime | None = None,
        expires_at: datetime | None = None,
        min_replicas: int | None = None,
    ) -> MessageId:
        """Publish a message and return its id; the two times override the message's own, `min_replicas` the queue's."""
        producer, breaker = self.producer, self.breaker
        if breaker.is_closed:
            try:
                message_id = await producer.enqueue(
                    message, scheduled_at=scheduled_at, expires_at=expires_at, min_replicas=min_replicas
                )
            except BrokerError:
                breaker.failed()
                raise
            if breaker.is_watching:
                breaker.worked()
        else:
            enqueuing = partial(
                producer.enqueue, message, scheduled_at=scheduled_at, expires_at=expires_at, min_replicas=min_replicas
            )
            message_id = await breaker.execute(enqueuing, failure=BrokerError)
        self.store_services.notice()
        return message_id

    async def enqueue_many(self, messages: Iterable[Message], *, min_replicas: int | None = None) -> list[MessageId]:
        """Publish messages, in one round trip per few hundred, and return their ids in order."""
        producer = self.producer
        ids = await self.breaker.execute(
            lambda: producer.enqueue_many(messages, min_replicas=min_replicas), failure=BrokerError
        )
        self.store_services.notice()
        return ids

    async def schedule_message(
        self,
        message: Message,
        deliver_at: datetime | None = None,
        *,
        cron: str | None = None,
        timezone: str = "UTC",
        **options: Any,
    ) -> str:
        """Let a message be delivered at a time to come and return its id, or by `cron` and return the schedule's.

        Due within an hour it waits in the broker, later in the store (without one always in the broker). `options` of
        a recurring one are those of `scheduler.add`.
        """
        return await self.scheduler.accept(message, deliver_at, cron=cron, timezone=timezone, **options)

    async def discard(self, queue: str, message_id: MessageId) -> bool:
        """Delete a message that waits, in all groups of its queue; say whether there was one."""
        return await self.broker.cancel(QueueName(queue), message_id, actor=self._name)

    def transform(self, queue: str, change: Transform) -> None:
        """Let every message for a queue pass through a function before it is published."""
        self._transforms[QueueName(queue)] = change

    # What the store knows

    async def status(self, message_id: MessageId) -> MessageStatus | None:
        """Say where a message stands, in all its groups: attempts, last attempt, next retry, how it ended."""
        return await self.store_services.status(message_id)

    def once(
        self,
        key: str,
        *,
        ttl: timedelta = DEFAULT_TTL,
        hold: timedelta = DEFAULT_HOLD,
        connection: Any = None,
    ) -> Once:
        """Let an effect happen once: `async with mq.once(key) as first: if first: ...`.

        A done key is remembered for `ttl`; one whose holder fell silent is free after `hold`. With `connection`, inside
        a transaction of the application on the store's database, key and effect are kept or lost together.
        """
        return self.store_services.once(key, ttl=ttl, hold=hold, connection=connection)

    def outbox(self, connection: Any) -> OutboxWriter:
        """Return an outbox: what it enqueues leaves when the transaction of `connection` commits, else never."""
        return self.store_services.outbox(connection)

    # Pulling by hand

    async def dequeue(
        self,
        queue: str,
        group: str = DEFAULT_GROUP,
        *,
        limit: int = 10,
        lease: timedelta | None = None,
        wait: timedelta = NO_WAIT,
    ) -> list[Delivery]:
        """Lease up to `limit` messages; settle each before its lease ends."""
        configured = self._registry.group(QueueName(queue), GroupName(group))
        return await self._manual.pull(
            QueueName(queue), GroupName(group), limit=limit, lease=lease or configured.lease, wait=wait
        )

    async def acknowledge_message(self, message: Delivery | MessageId, group: str | None = None) -> None:
        """Settle a delivery, or a message this manager holds for a group, as done."""
        await self._manual.acknowledge(message, group)
        self.store_services.notice()

    async def reject_message(
        self,
        message: Delivery | MessageId,
        reason: str,
        *,
        requeue: bool = True,
        group: str | None = None,
    ) -> None:
        """Settle it as failed: tried again as the retry policy says, or, without `requeue`, given up at once."""
        await self._manual.reject(message, reason, requeue=requeue, group=group)
        self.store_services.notice()

    # Watching

    async def instances(self, queue: str | None = None) -> list[ConsumerInstance]:
        """Return every consumer instance that wrote a heartbeat within the last hour, and how it does."""
        return await self.monitoring.instances(queue)

    def on_alert(self, sink: Sink) -> Sink:
        """Call a function (plain or async) with every alert; usable as a decorator."""
        self.monitor.add_sink(sink)
        return sink


_ARGUMENTS: Final = tuple(inspect.signature(MessageQueueManager).parameters)[:-1]
