"""An application's consumers, and the workers that run them: the manager's side towards handlers."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from datetime import timedelta
from random import Random
from typing import Final, Never, TypeVar

from godwit.brokers.contract import Broker
from godwit.core.clock import Clock
from godwit.core.errors import InvalidSetting, UnknownArgument
from godwit.core.failures.breaker import Breaker
from godwit.core.failures.judgement import Classifier
from godwit.core.failures.retry import RetryPolicy
from godwit.core.names import DEFAULT_GROUP, GroupName, QueueName
from godwit.core.rate import Rate
from godwit.core.settings import Settings
from godwit.runtime.delivery.tracing import traced
from godwit.runtime.effects.once import PATIENCE, KeyOf, handled_once
from godwit.runtime.effects.services import StoreServices
from godwit.runtime.handlers.parameter import with_payloads
from godwit.runtime.handlers.signature import check_handler, refused
from godwit.runtime.producer.producer import QueueProducer
from godwit.runtime.worker.consumer import Consumer, Handler, QueueConsumer, duration_or, queues_of
from godwit.runtime.worker.health_checks import HealthCallable
from godwit.runtime.worker.registry import Registry
from godwit.runtime.worker.worker import Worker, WorkerSettings
from godwit.telemetry.metrics import QueueMetricsCollector
from godwit.telemetry.tracing import Tracer

H = TypeVar("H", bound=Handler)

_PARENTHESES: Final = 'Name the queues: @mq.consumer("orders").'


class ConsumerRegistration:
    """The manager's side towards handlers: registers consumers and makes workers for them."""

    broker: Broker
    settings: Settings
    metrics: QueueMetricsCollector
    tracer: Tracer | None
    store_services: StoreServices
    _registry: Registry
    _clock: Clock
    _random: Random

    def consumer(
        self,
        *queues: str,
        group: str = DEFAULT_GROUP,
        concurrency: int | None = None,
        lease: timedelta | float | None = None,
        time_limit: timedelta | float | None = None,
        retry_policy: RetryPolicy | None = None,
        batch: int | bool | None = None,
        batch_timeout: timedelta | float | None = None,
        types: Iterable[str] | None = None,
        classify: Classifier | None = None,
        health_check: HealthCallable | None = None,
        once: KeyOf | None = None,
        breaker: Breaker | None = None,
        rate: Rate | str | None = None,
        **unknown: Never,
    ) -> Callable[[H], H]:
        """Let the decorated function handle messages; what is not said here comes from the configuration.

        With `batch` it takes lists of so many at most (True: as many as the configuration says). `once` names the
        effect of a message: it is made once per group and name, also when the message is delivered twice. `breaker`
        names the downstream that the handler needs: while that is away nothing is pulled. `rate` (`"14/s"`) is how many
        messages may begin in a time, over all workers of the group. Numbers for durations are seconds.

        A function whose parameter is a payload's type gets the payload, converted, instead of the message.
        """
        for argument in unknown:
            raise UnknownArgument("consumer()", argument, _ARGUMENTS)
        for queue in queues:
            if not isinstance(queue, str) and callable(queue):
                raise refused(queue, "is decorated with @mq.consumer without parentheses", _PARENTHESES)
        if once is not None:
            self.store_services.store("once")
            if batch:
                raise InvalidSetting("once", "given together with batch", "one or the other: a batch has many effects")

        def register(handler: H) -> H:
            check_handler(handler)
            # Names of the function that registers it: a payload's type may be a class inside it.
            names = sys._getframe(1).f_locals  # noqa: SLF001 - as pydantic finds them
            called = with_payloads(handler, names, batch=bool(batch))
            self._registry.add(
                called if once is None else self._handled_once(called, once, queues, group, time_limit),
                queues,
                GroupName(group),
                concurrency=concurrency,
                lease=lease,
                time_limit=time_limit,
                retry_policy=retry_policy,
                batch=batch,
                batch_timeout=batch_timeout,
                types=types,
                classify=classify,
                health_check=health_check,
                breaker=breaker,
                rate=rate,
            )
            return handler

        return register

    def _handled_once(
        self, handler: Handler, key_of: KeyOf, queues: tuple[str, ...], group: str, limit: timedelta | float | None
    ) -> Handler:
        services = self.store_services
        configured = [self._registry.group(QueueName(queue), GroupName(group)).processing_timeout for queue in queues]
        shortest = duration_or(limit, min(configured, default=PATIENCE), "time_limit")
        # A message that waits for another one's effect is postponed before its own time is over.
        patience = min(PATIENCE, shortest / 2)
        return handled_once(handler, key_of, services.once, group, beside=services.run_beside, patience=patience)

    def register(self, consumer: QueueConsumer) -> None:
        """Let a worker run a consumer of the class form."""
        if not isinstance(consumer, QueueConsumer):
            shown = consumer.__name__ if isinstance(consumer, type) else type(consumer).__name__
            raise InvalidSetting("consumer", shown, "an instance of a QueueConsumer, such as mq.register(Emails())")
        self.consumer(
            *queues_of(consumer),
            group=consumer.group,
            concurrency=consumer.concurrency,
            lease=consumer.lease,
            time_limit=consumer.time_limit,
            retry_policy=consumer.retry_policy,
            health_check=consumer.health_check,
            breaker=consumer.breaker,
            rate=consumer.rate,
        )(consumer.process_message)

    @property
    def producer(self) -> QueueProducer:
        """The producer, while the manager is open."""
        raise NotImplementedError

    @property
    def consumers(self) -> tuple[Consumer, ...]:
        """What a worker runs."""
        return tuple(self._registry.consumers)

    def worker(self, *, name: str | None = None, consumers: Iterable[Consumer] | None = None) -> Worker:
        """Return a worker for the registered consumers."""
        chosen = list(self.consumers if consumers is None else consumers)
        tracer = self.tracer
        worker = Worker(
            self.broker,
            chosen if tracer is None else [traced(consumer, tracer) for consumer in chosen],
            name=name,
            settings=WorkerSettings(
                grace=self.settings.consumer.shutdown_grace,
                heartbeat_interval=self.settings.consumer.heartbeat_interval,
                breaker=self.settings.breaker,
            ),
            metrics=self.metrics,
            changed=self.store_services.notice,
            learned=self.store_services.learn,
            clock=self._clock,
            random=self._random,
        )
        worker.check_open = lambda: self.producer
        return worker


_ARGUMENTS: Final = tuple(inspect.signature(ConsumerRegistration.consumer).parameters)[2:-1]
