"""From the [[queues]] of a file to queue configurations; what a queue leaves out comes from defaults or its type."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

from godwit.config.fields import with_fields
from godwit.config.keys import GROUP_KEYS, QUEUE_KEYS, QUEUE_PARTS, RETRY_KEYS, RULE_KEYS, Key
from godwit.config.sources import Document, FoundValue
from godwit.config.toml_lines import Path
from godwit.core.errors import ConfigurationError, InvalidArgumentError, listed, shown
from godwit.core.failures.retry import Backoff, RetryPolicy
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueType
from godwit.core.settings import GroupConfiguration, QueueConfiguration, RetryChanges, RoutingRule, Settings

T = TypeVar("T")

CONSUMER_PARTS: Final = (
    "lease",
    "processing_timeout",
    "batch_size",
    "batch_timeout",
    "health_check.interval",
    "health_check.timeout",
)
"""What a group takes from [consumer] when it says nothing itself."""

TYPE_PARTS: Final = frozenset({"priority", "max_size", "ttl", *(key.name for key in RETRY_KEYS)})
"""What a queue takes from [defaults] or its type when it says nothing itself."""


class QueueReader:
    """Reads the queues of one document on top of settings that hold everything else; notes where values come from."""

    def __init__(self, document: Document, settings: Settings) -> None:
        self._document = document
        self._settings = settings
        self.origins: dict[str, str] = {}

    def queues(self) -> tuple[QueueConfiguration, ...]:
        """Return every queue of the document."""
        places: dict[str, str] = {}
        queues = []
        for path, table in self._tables(("queues",), self._document.tables.get("queues", [])):
            queue = self._queue(table, path)
            self._only_once(places, f"queue {shown(queue.name)}", queue.name, path)
            queues.append(queue)
        self._check_targets(queues)
        self._check_dead_letter_queues(queues)
        return tuple(queues)

    def _queue(self, table: object, path: Path) -> QueueConfiguration:
        given = self._document.read(table, path, QUEUE_KEYS, QUEUE_PARTS)
        name = QueueName(self._needed(given, "name", path))
        kind: QueueType = given["type"].value if "type" in given else QueueType.STANDARD
        base = self._settings.queue(name, type=kind)
        policy = self._retry_policy(given, base.retry_policy, path)
        queue = self._filled(base, given, QUEUE_KEYS, path)
        self._note_queue(name, kind, given)
        tables: dict[str, Any] = table if isinstance(table, dict) else {}
        return QueueConfiguration(
            spec=queue.spec,
            retry_policy=policy,
            groups=self._groups(queue, policy, tables.get("consumer_groups"), (*path, "consumer_groups")),
            rules=self._rules(name, tables.get("routing", {}).get("rules", []), (*path, "routing", "rules")),
        )

    def _groups(
        self, queue: QueueConfiguration, policy: RetryPolicy, listed_groups: object, path: Path
    ) -> tuple[GroupConfiguration, ...]:
        if listed_groups is None:
            # What the defaults give; read like one that is written down, so that its values have origins too.
            return tuple(self._group(queue.name, policy, {"name": group.name}, path) for group in queue.groups)
        places: dict[str, str] = {}
        groups = []
        for here, item in self._tables(path, listed_groups):
            group = self._group(queue.name, policy, {"name": item} if isinstance(item, str) else item, here)
            self._only_once(places, f"group {shown(group.name)} of queue {shown(queue.name)}", group.name, here)
            groups.append(group)
        if not groups and queue.spec.type is not QueueType.DEAD_LETTER:
            remedy = "Name a group, or leave the key out: the queue then has the group default."
            raise ConfigurationError(self._document.where(path), f"queue {shown(queue.name)} has no group", remedy)
        return tuple(groups)

    def _group(self, queue: QueueName, policy: RetryPolicy, table: object, path: Path) -> GroupConfiguration:
        given = self._document.read(table, path, GROUP_KEYS)
        name = GroupName(self._needed(given, "name", path))
        base = self._settings.group(name)
        if any(key.startswith("backoff.") for key in given):
            base = with_fields(base, [(("spec", "backoff"), Backoff())])
        group = self._filled(base, given, GROUP_KEYS, path)
        if any(key.startswith("retry_policy.") for key in given):
            own = self._retry_policy(given, policy, path)
            group = with_fields(group, [(("retry_policy",), own)])
        if group.health_check.timeout > group.health_check.interval and "health_check.timeout" not in given:
            group = with_fields(group, [(("health_check", "timeout"), group.health_check.interval)])
        if group.health_check.timeout > group.health_check.interval:
            remedy = "Give the answer less time than lies between two questions."
            problem = f"health_check.timeout of group {shown(name)} is longer than its interval"
            raise ConfigurationError(self._document.where(path), problem, remedy)
        for key in GROUP_KEYS:
            origin = self._settings.origins.get(f"consumer.{key}") if key in CONSUMER_PARTS else None
            self._note(f"queues[{queue}].consumer_groups[{name}].{key}", given.get(key), origin)
        return group

    def _rules(self, queue: QueueName, listed_rules: object, path: Path) -> tuple[RoutingRule, ...]:
        rules: list[RoutingRule] = []
        for here, table in self._tables(path, listed_rules):
            given = self._document.read(table, here, RULE_KEYS)
            condition, target = (self._needed(given, key, here) for key in RULE_KEYS)
            self.origins[f"queues[{queue}].routing.rules[{len(rules) + 1}]"] = given["condition"].origin
            rules.append(RoutingRule(condition=condition, target=QueueName(target)))
        return tuple(rules)

    def _retry_policy(self, given: Mapping[str, FoundValue], base: RetryPolicy, path: Path) -> RetryPolicy:
        stated = {key.path[-1]: given[key.name].value for key in RETRY_KEYS if key.name in given}
        policy = RetryChanges(**stated).applied_to(base)
        if policy.initial_delay > policy.max_delay:
            problem = f"initial_delay ({policy.initial_delay}) is longer than max_delay ({policy.max_delay})"
            where = self._document.where((*path, "retry_policy", "initial_delay"))
            raise ConfigurationError(where, problem, "Raise max_delay or lower initial_delay.")
        return policy

    def _filled(self, base: T, given: Mapping[str, FoundValue], keys: Mapping[str, Key], path: Path) -> T:
        """Return `base` with what was said; a combination that a spec refuses is blamed on the key it names."""
        pairs = [
            (keys[name].path, found.value) for name, found in given.items() if not name.startswith("retry_policy.")
        ]
        try:
            return with_fields(base, pairs)
        except InvalidArgumentError as error:
            setting = getattr(error, "setting", "")
            raise ConfigurationError(self._document.where((*path, setting)), error.fact, error.remedy) from None

    def _needed(self, given: Mapping[str, FoundValue], key: str, path: Path) -> str:
        if key not in given:
            raise ConfigurationError(self._document.where(path), f"{path[-2]} has no {key}", f'Write {key} = "...".')
        return str(given[key].value)

    def _tables(self, path: Path, items: object) -> Iterable[tuple[Path, object]]:
        if not isinstance(items, list):
            name = ".".join(str(part) for part in path if isinstance(part, str))
            raise ConfigurationError(
                self._document.where(path), f"{name} is {shown(items)}", f"Write tables: [[{name}]]."
            )
        return (((*path, number), item) for number, item in enumerate(items))

    def _only_once(self, places: dict[str, str], what: str, name: str, path: Path) -> None:
        here = self._document.where(path)
        if name in places:
            raise ConfigurationError(here, f"{what} was configured before, at {places[name]}", "Keep one of them.")
        places[name] = here

    def _check_targets(self, queues: list[QueueConfiguration]) -> None:
        """Refuse a rule that leads nowhere: better found at start than with the first message."""
        known = tuple(queue.name for queue in queues)
        for number, queue in enumerate(queues):
            for index, rule in enumerate(queue.rules):
                if rule.target not in known:
                    where = self._document.where(("queues", number, "routing", "rules", index, "target"))
                    raise unknown_queue(where, "the rule's target", rule.target, known)
        default = self._settings.default_queue
        if default is not None and queues and default not in known:
            raise unknown_queue(self._settings.origins["default_queue"], "default_queue", default, known)

    def _check_dead_letter_queues(self, queues: list[QueueConfiguration]) -> None:
        """Refuse dead letters that would go round for ever."""
        following = {queue.name: queue.spec.dead_letter_queue for queue in queues}
        for number, queue in enumerate(queues):
            way = [queue.name]
            while (after := following.get(way[-1])) is not None and after not in way:
                way.append(after)
            if after == queue.name:
                where = self._document.where(("queues", number, "dead_letter_queue"))
                circle = " -> ".join((*way, queue.name))
                raise ConfigurationError(where, f"dead letters go round: {circle}", "Let the last one have none.")

    def _note_queue(self, name: QueueName, type: QueueType, given: Mapping[str, FoundValue]) -> None:
        for key in QUEUE_KEYS:
            origin = self._settings.origins.get(f"defaults.{key}")
            if origin is None and key in TYPE_PARTS:
                origin = f"type {type.value}"
            self._note(f"queues[{name}].{key}", given.get(key), origin)

    def _note(self, name: str, found: FoundValue | None, otherwise: str | None) -> None:
        origin = otherwise if found is None else found.origin
        if origin is not None:
            self.origins[name] = origin


def unknown_queue(where: str, what: str, name: str, known: tuple[str, ...]) -> ConfigurationError:
    """Return the error for a queue that is named but not configured."""
    close = difflib.get_close_matches(name, known, n=1)
    remedy = f"Did you mean {shown(close[0])}?" if close else "Add it to [[queues]], or name one of them."
    return ConfigurationError(where, f"{what} {shown(name)} is not configured (configured: {listed(known)})", remedy)
