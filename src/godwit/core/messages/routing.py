"""Which queue a message goes to, and why: explicit choices first, then rules by falling priority of their queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from godwit.core.error_text import error_text, type_name, value_text
from godwit.core.errors import GodwitError, TransformFailed, Unroutable
from godwit.core.messages.checks import check_fields
from godwit.core.messages.conditions import Condition
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.core.settings import QueueConfiguration

Report: TypeAlias = Callable[[str, str], None]
"""Told once per condition that it could not be asked about a message: the condition and the problem."""

Transform: TypeAlias = Callable[[Message], Message]
"""Changes a message before it is published to a queue; id and queue stay."""


class RoutingStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step of a routing decision: where it looked, whether it named a queue, and why or why not."""

    looked_at: str
    queue: QueueName | None
    matched: bool
    chosen: bool
    why: str


class CompiledRule(msgspec.Struct, frozen=True):
    """A compiled rule: messages that meet the condition go to `target`; `owner` is the queue that states it."""

    owner: QueueName
    condition: Condition
    target: QueueName


class Router:
    """Chooses a queue for every message.

    In this order: `routing.target_queue`, `Message.queue`, the rules of the queues by falling queue priority (queues of
    equal priority, and the rules of one queue, in the order of the file; the first match wins), the default queue.
    """

    def __init__(
        self,
        queues: Sequence[QueueConfiguration] = (),
        *,
        default_queue: QueueName | None = None,
        report: Report | None = None,
    ) -> None:
        by_priority = sorted(queues, key=lambda queue: -queue.spec.priority)  # stable: equals stay in file order
        self._default = default_queue
        self._attributes = {queue.name: queue.spec.journal_attributes for queue in queues}
        self._rules = tuple(
            CompiledRule(queue.name, Condition(rule.condition, report=report), rule.target)
            for queue in by_priority
            for rule in queue.rules
        )

    @property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The rules in the order they are asked."""
        return self._rules

    def journal_attributes(self, queue: QueueName) -> tuple[str, ...]:
        """Return the names of the attributes that a queue wants in its journal."""
        return self._attributes.get(queue, ())

    def route(self, message: Message) -> QueueName:
        """Return the queue for `message`; raises `Unroutable` when nothing names one."""
        named = message.routing.target_queue or message.queue
        if named:
            return named
        for rule in self._rules:
            if rule.condition(message):
                return rule.target
        if self._default:
            return self._default
        raise Unroutable(message.id, message.type, len(self._rules))

    def explain(self, message: Message) -> list[RoutingStep]:
        """Return every step with its reason, also those after the choice; at most one is chosen."""
        found = [
            _explicit("routing.target_queue", message.routing.target_queue),
            _explicit("queue", message.queue),
            *(self._asked(rule, message) for rule in self._rules),
            _explicit("default_queue", self._default),
        ]
        choice = next((at for at, step in enumerate(found) if step.matched), None)
        return [step if at != choice else msgspec.structs.replace(step, chosen=True) for at, step in enumerate(found)]

    @staticmethod
    def _asked(rule: CompiledRule, message: Message) -> RoutingStep:
        answer = rule.condition.ask(message)
        why = "the condition holds" if answer.holds else answer.problem or "the condition does not hold"
        looked_at = f"rule of {rule.owner}: {rule.condition.source}"
        return RoutingStep(looked_at=looked_at, queue=rule.target, matched=answer.holds, chosen=False, why=why)


def _explicit(looked_at: str, queue: QueueName | None) -> RoutingStep:
    why = f"it names {queue}" if queue else "it is not set"
    return RoutingStep(looked_at=looked_at, queue=queue or None, matched=bool(queue), chosen=False, why=why)


def filters_of(queue: QueueConfiguration, *, report: Report | None = None) -> dict[GroupName, Condition]:
    """Return the filter of each group that has one; what does not meet it is acked there without being handled."""
    return {group.name: Condition(group.filter, report=report) for group in queue.groups if group.filter is not None}


def transformed(message: Message, queue: QueueName, transform: Transform) -> Message:
    """Return what the application's transform makes of a message bound for `queue`."""
    try:
        result = transform(message)
    except GodwitError:
        raise
    except Exception as error:
        raise TransformFailed(queue, f"raised {type_name(error)}: {error_text(error)}") from error
    if not isinstance(result, Message):
        raise TransformFailed(queue, f"returned {type(result).__name__}, not a Message")
    if result.id != message.id:
        raise TransformFailed(queue, f"changed the id from {message.id} to {value_text(result.id)}")
    check_fields(result)
    if (result.routing.target_queue or result.queue) != queue:
        raise TransformFailed(queue, f"sent the message to {result.routing.target_queue or result.queue!r}")
    return result
