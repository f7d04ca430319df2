"""The effective configuration as rows: name, value and where it came from; without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from msgspec import UNSET

from godwit.config.fields import field_of
from godwit.config.keys import GROUP_KEYS, QUEUE_KEYS, SETTINGS, Key
from godwit.core.settings import Settings

BY_TYPE: Final = "by type"
_WITHOUT_RETRY: Final = {name: key for name, key in GROUP_KEYS.items() if not name.startswith("retry_policy.")}


class Described(NamedTuple):
    """A value that is in force."""

    name: str
    value: str
    origin: str


def describe(settings: Settings) -> list[Described]:
    """Return every value in force, in the order of the documentation, queues last."""
    return [*_rows(settings, settings, SETTINGS, ""), *_queue_rows(settings)]


def _queue_rows(settings: Settings) -> Iterator[Described]:
    for queue in settings.queues:
        yield from _rows(settings, queue, QUEUE_KEYS, f"queues[{queue.name}].")
        for number, rule in enumerate(queue.rules, start=1):
            name = f"queues[{queue.name}].routing.rules[{number}]"
            yield Described(name, f"{rule.condition} -> {rule.target}", settings.origins.get(name, "default"))
        for group in queue.groups:
            # A group without a retry policy of its own has its queue's, which is shown there.
            keys = GROUP_KEYS if group.retry_policy is not None else _WITHOUT_RETRY
            yield from _rows(settings, group, keys, f"queues[{queue.name}].consumer_groups[{group.name}].")


def _rows(settings: Settings, value: Any, keys: Mapping[str, Key], prefix: str) -> Iterator[Described]:
    for name, key in keys.items():
        origin = settings.origins.get(prefix + name, "default")
        yield Described(prefix + name, shown_value(key, field_of(value, key.path)), origin)


def shown_value(key: Key, value: Any) -> str:
    """Return a value as its key would be written; what is left to something else says to what."""
    if value is UNSET or (value is None and key.name.startswith("defaults.retry_policy.")):
        return BY_TYPE
    if value is None:
        return "none"
    return key.reader.show(value)
