"""Consumers as an application registered them, completed from the configuration, and the queues they need."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from datetime import timedelta

import msgspec

from godwit.brokers.contract import Administration
from godwit.core.errors import InvalidSetting
from godwit.core.failures.breaker import Breaker
from godwit.core.failures.judgement import Classifier
from godwit.core.failures.retry import RetryPolicy
from godwit.core.messages.conditions import Condition
from godwit.core.messages.routing import filters_of
from godwit.core.messages.schemas import Check
from godwit.core.names import GroupName, QueueName, group_name, queue_name
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec
from godwit.core.rate import Rate, as_rate
from godwit.core.settings import GroupConfiguration, QueueConfiguration, QueueOrder, Settings
from godwit.runtime.handlers.signature import name_of, refused
from godwit.runtime.worker.consumer import Consumer, Handler, duration_or
from godwit.runtime.worker.health_checks import HealthCallable, HealthProbe, named


class Registry:
    """What a worker of this application runs; what a consumer leaves unsaid comes from the configuration."""

    def __init__(self, settings: Settings, *, checks: Mapping[str, Check]) -> None:
        self._settings, self._checks = settings, checks
        self.consumers: list[Consumer] = []

    def add(
        self,
        handler: Handler,
        queues: Iterable[str],
        group: GroupName,
        *,
        concurrency: int | None,
        lease: timedelta | float | None,
        time_limit: timedelta | float | None,
        retry_policy: RetryPolicy | None,
        batch: int | bool | None,
        batch_timeout: timedelta | float | None,
        types: Iterable[str] | None,
        classify: Classifier | None,
        health_check: HealthCallable | None,
        breaker: Breaker | None = None,
        rate: Rate | str | None = None,
    ) -> None:
        """Register a handler; what it shares with another of its group is refused."""
        settings = self._settings
        if isinstance(types, str) or (types is not None and not (types := frozenset(types))):
            raise InvalidSetting("types", types, "a list of message types, such as ['order.created']")
        queues = tuple(queue_name(queue) for queue in queues)
        self._refuse_a_second(handler, queues, group, types)
        names = sorted(map(QueueName, queues), key=lambda name: -settings.queue(name).spec.priority)
        configured = self.group(names[0], group) if names else settings.group(group)
        self.consumers.append(
            Consumer(
                handler=handler,
                queues=tuple(names),
                group=group,
                concurrency=settings.consumer.max_concurrency if concurrency is None else concurrency,
                lease=duration_or(lease, configured.lease, "lease"),
                time_limit=duration_or(time_limit, configured.processing_timeout, "time_limit"),
                retry_policy=retry_policy,
                retry_policies={name: settings.queue(name).retry_policy_for(group) for name in names},
                weights=tuple(1 + settings.queue(name).spec.priority for name in names),
                strict=settings.consumer.queue_order is QueueOrder.STRICT,
                batch=configured.batch_size if batch is True else batch or None,
                batch_timeout=duration_or(batch_timeout, configured.batch_timeout, "batch_timeout"),
                types=types,
                classify=classify,
                last_chance=_last_chance(configured.spec.max_crashes),
                filters=self._filters(names, group),
                checks=self._checks,
                health=_probe(configured, health_check),
                load_balancing=configured.load_balancing,
                max_concurrency=configured.max_concurrency,
                breaker=breaker,
                rate=as_rate(rate) or configured.rate,
            )
        )

    def _refuse_a_second(
        self, handler: Handler, queues: Iterable[QueueName], group: GroupName, types: frozenset[str] | None
    ) -> None:
        """Refuse a handler for what another one of its group handles: which of them got a message would be chance.

        The same function may be registered several times: it does the same, in several instances.
        """
        for other in self.consumers:
            if _code(other.handler) is _code(handler):
                continue
            shared = sorted(set(queues) & set(other.queues))
            both = types if other.types is None else other.types if types is None else types & other.types
            if shared and other.group == group and (both is None or both):
                what = f"handles type {min(both)!r}" if both else "handles messages"
                problem = f"{what} of queue {shared[0]!r} in group {group!r}, as {name_of(other.handler)} does"
                remedy = "Give it a group of its own (each group gets every message), or tell the two apart by types=."
                raise refused(handler, problem, remedy)

    def group(self, queue: QueueName, group: GroupName) -> GroupConfiguration:
        """Return how a group of a queue is configured."""
        known = {one.name: one for one in self._settings.queue(queue).groups}
        return known.get(group) or self._settings.group(group)

    def wanted(self) -> list[QueueConfiguration]:
        """Return every queue to declare: the configured ones, and those that only a consumer names."""
        names = dict.fromkeys([queue.name for queue in self._settings.queues])
        names |= dict.fromkeys(queue for consumer in self.consumers for queue in consumer.queues)
        return [self._with_consumers(self._settings.queue(name)) for name in names]

    async def declare(self, broker: Administration, *, bodies: bool) -> None:
        """Declare all that is wanted; with `bodies` the journal keeps whole messages, for a recorder."""
        for queue in self.wanted():
            if not queue.groups:
                continue  # a dead letter queue that is only a name: declared, it would be fed
            await broker.declare(_with_bodies(queue.spec, bodies=bodies), [group.spec for group in queue.groups])

    async def declare_one(
        self, broker: Administration, queue: str | QueueSpec, groups: Iterable[str | GroupSpec], *, bodies: bool
    ) -> None:
        """Declare a queue; what is given by name has the settings of the configuration."""
        name = queue.name if isinstance(queue, QueueSpec) else queue_name(queue)
        spec = queue if isinstance(queue, QueueSpec) else self._settings.queue(name).spec
        specs = [one if isinstance(one, GroupSpec) else self.group(name, group_name(one)).spec for one in groups]
        wanted = {known.name: known for known in self.wanted()}
        if not specs and name in wanted:
            specs = [group.spec for group in wanted[name].groups]
        await broker.declare(_with_bodies(spec, bodies=bodies), specs)

    def _with_consumers(self, queue: QueueConfiguration) -> QueueConfiguration:
        """Return a queue with the groups its consumers need; a configured queue keeps those it has."""
        configured = queue.name in {known.name for known in self._settings.queues}
        groups = {group.name: group for group in queue.groups} if configured else {}
        for consumer in self.consumers:
            if queue.name in consumer.queues and consumer.group not in groups:
                groups[consumer.group] = self._settings.group(consumer.group)
        return QueueConfiguration(
            spec=queue.spec, retry_policy=queue.retry_policy, groups=tuple(groups.values()), rules=queue.rules
        )

    def _filters(self, queues: Iterable[QueueName], group: GroupName) -> dict[QueueName, Condition]:
        found = {queue: filters_of(self._settings.queue(queue)).get(group) for queue in queues}
        return {queue: condition for queue, condition in found.items() if condition is not None}


def _code(handler: Handler) -> object:
    """Return what a handler does: its code, also when it was made anew by a function; else the handler itself."""
    return getattr(handler, "__code__", handler)


def _with_bodies(spec: QueueSpec, *, bodies: bool) -> QueueSpec:
    """Return a queue whose journal keeps whole messages where a recorder reads it and nothing else was said."""
    if bodies and spec.journal_body is JournalBody.AUTO:
        return msgspec.structs.replace(spec, journal_body=JournalBody.ON)
    return spec


def _last_chance(max_crashes: int | None) -> int:
    """Return after how many crashes a message is handled alone: never, where crashes have no limit."""
    return sys.maxsize if max_crashes is None else max(1, max_crashes - 1)


def _probe(group: GroupConfiguration, own: HealthCallable | None) -> HealthProbe:
    """Return how the members of a group are asked how they are: by the function given, or by the configured one."""
    check = group.health_check
    ask = own if own is not None or check.callable is None else named(check.callable)
    return HealthProbe(interval=check.interval, timeout=check.timeout, ask=ask)
