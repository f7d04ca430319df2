"""What scripts need to know of a queue: its settings at one version, and the keys and limits that follow from them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import msgspec

from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.partitions import LaidMessages, share
from godwit.core.clock import milliseconds
from godwit.core.errors import GroupNotFound
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, JournalBody, Overflow, QueueSpec

_spec: Final = msgspec.json.Decoder(LaidMessages)
_groups: Final = msgspec.json.Decoder(list[GroupSpec])


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """A queue's settings at one version, and what scripts need of them."""

    name: QueueName
    version: bytes
    spec: LaidMessages
    groups: Mapping[GroupName, GroupSpec]
    keys: tuple[str, ...]
    """All keys of a publish to this partition."""
    limits: tuple[int, int, int, int]
    """Most messages, bytes and delayed messages of a partition (0: no limit), and the dedup window in ms."""
    names: tuple[str, ...]
    """Per group: its name, whether it drops, whether it keeps the order of keys."""
    numbers: Mapping[GroupName, int]
    """The groups' numbers, from 1."""
    ordered: bool
    """Whether any group keeps the order of keys."""
    keeps_body: bool
    app_version: str | None
    ttl_ms: int
    arriving: dict[str, tuple[str, ...]]
    """The keys of `arrive.lua` by the lanes that occur, as far as they were needed."""
    openings: dict[int, bytes]
    """What the command of `arrive_one.lua` begins with, by the message's lane, as far as it was needed."""
    alone: bool
    """Whether one script call on one server is all that a publish takes, for one group."""
    views: dict[int, QueueConfig]
    """The same for further partitions, as far as they were needed."""
    partition: int = 0

    def arrival_keys(self, lanes: str) -> tuple[str, ...]:
        """Return the keys of `arrive.lua` for messages of these lanes."""
        found = self.arriving.get(lanes)
        if found is None:
            wanted = ("wake", "expiring", *(f"l{lane}" for lane in lanes))
            places = [keys.GROUP_PARTS.index(name) for name in wanted]
            blocks = (keys.block(self.name, group, self.partition) for group in self.groups)
            own = (*keys.step(self.name, self.partition), *keys.arrivals(self.name, self.partition)[:3])
            found = self.arriving[lanes] = (*own, *(block[place] for block in blocks for place in places))
        return found

    @property
    def partitions(self) -> range:
        """The numbers of its partitions."""
        return range(self.spec.partitions)

    def at(self, partition: int) -> QueueConfig:
        """Return the same for one of its partitions."""
        if partition == self.partition:
            return self
        found = self.views.get(partition)
        if found is None:
            names = keys.publishing(self.name, tuple(self.groups), partition)
            found = self.views[partition] = replace(self, partition=partition, keys=names, arriving={}, openings={})
        return found

    def group(self, name: GroupName) -> GroupSpec:
        """Return a group's settings."""
        spec = self.groups.get(name)
        if spec is None:
            raise GroupNotFound(self.name, name, tuple(self.groups))
        return spec


def queue_config(
    version: bytes, spec: LaidMessages, groups: Sequence[GroupSpec], *, bodies: bool, app_version: str | None = None
) -> QueueConfig:
    """Put together what is known of a queue."""
    limits = (share(limit, spec.partitions) for limit in (spec.max_size, spec.max_bytes, spec.max_delayed))
    return QueueConfig(
        name=spec.name,
        version=version,
        spec=spec,
        groups={group.name: group for group in groups},
        keys=keys.publishing(spec.name, tuple(group.name for group in groups)),
        limits=(*limits, milliseconds(spec.dedup_window)),  # type: ignore[arg-type]  # three of them
        names=tuple(
            word
            for group in groups
            for word in (group.name, "10"[group.overflow is not Overflow.DROP], "01"[group.message_ordering])
        ),
        numbers={group.name: number for number, group in enumerate(groups, 1)},
        ordered=any(group.message_ordering for group in groups),
        keeps_body=spec.journal_body is JournalBody.ON or (bodies and spec.journal_body is JournalBody.AUTO),
        app_version=app_version,
        ttl_ms=milliseconds(spec.ttl) if spec.ttl is not None else 0,
        arriving={},
        openings={},
        alone=len(groups) == 1 and spec.partitions == 1 and not spec.min_replicas,
        views={},
    )


def read_queue_config(values: list[Any], *, bodies: bool, app_version: str | None = None) -> QueueConfig | None:
    """Return what a server says of a queue by `v`, `spec` and `groups` of its meta; None when it has none."""
    version, spec, groups = values
    if spec is None:
        return None
    return queue_config(version, _spec.decode(spec), _groups.decode(groups), bodies=bodies, app_version=app_version)


def laid_out(present: QueueConfig | None, spec: QueueSpec) -> LaidMessages:
    """Return how a queue is to be laid out that has these settings from now on."""
    settings = msgspec.structs.asdict(spec)
    older, born = ((), "") if present is None else (present.spec.older, present.spec.born)
    if present is not None and present.spec.partitions < spec.partitions:
        older = (*older, present.spec.partitions)
    if spec.partitions > 1 and not born:
        born = secrets.token_hex(4)
    return LaidMessages(**settings, older=older, born=born)
