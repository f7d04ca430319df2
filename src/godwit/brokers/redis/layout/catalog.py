"""What queues there are and how they are set up, as far as this process knows.

Scripts take a queue's keys and limits from the client; each says which version of the settings it means, and the server
refuses an old one.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import groups_or_default
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.script_runner import ScriptRunner, answered, call_name
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.partitions import LaidMessages, share
from godwit.brokers.redis.layout.queue_config import QueueConfig, laid_out, read_queue_config
from godwit.brokers.redis.layout.queue_list import QueueList
from godwit.core.clock import milliseconds
from godwit.core.errors import AlreadyExistsError, BrokerUnavailable, InvalidSetting, QueueNotFound
from godwit.core.journal.shards import SPAN
from godwit.core.names import GroupName, QueueName, is_name
from godwit.core.queues import (
    GROUP_FIXED,
    QUEUE_FIXED,
    GroupSpec,
    QueueSpec,
    changed_setting,
)

STALE: Final = b"stale"


class Catalog:
    """The queues of a server; `bodies` is what `journal_body = auto` means."""

    def __init__(self, reach: ScriptRunner, *, bodies: bool) -> None:
        self._reach = reach
        self._bodies = bodies
        self.list = QueueList(reach)
        self.app_version: str | None = None
        """Of the application that publishes and pulls."""
        self._known: dict[QueueName, QueueConfig] = {}
        self._gone: dict[QueueName, int] = {}
        """Removed queues among the listed ones, and their places."""
        self.some_partitioned = False
        """Whether any queue seen so far has several partitions."""

    def known(self, name: QueueName) -> QueueConfig | None:
        """Return what is known of a queue without asking the server."""
        return self._known.get(name)

    async def find(self, name: QueueName) -> QueueConfig:
        """Return what is known of a queue, asking the server the first time."""
        return self._known.get(name) or await self.ask(name)

    async def ask(self, name: QueueName) -> QueueConfig:
        """Return what the server says of a queue."""
        found = await self._read(name) if is_name(name) else None
        if found is None:
            self._known.pop(name, None)
            raise QueueNotFound(name, tuple([one.name for one in await self.all()]))
        self._known[name] = found
        self.some_partitioned = self.some_partitioned or found.spec.partitions > 1
        return found

    def partitions_of(self, name: QueueName) -> int:
        """Return how many partitions a queue has, as far as is known."""
        found = self._known.get(name)
        return 1 if found is None else found.spec.partitions

    def is_current(self, name: QueueName, version: bytes) -> bool:
        """Say whether nothing newer than `version` is to be learned of a queue's settings."""
        found = self._known.get(name)
        return found is not None and found.version == version

    async def _read(self, name: QueueName, partition: int = 0) -> QueueConfig | None:
        (values,) = await self._reach.ask(("HMGET", keys.part(name, "meta", partition), "v", "spec", "groups"))
        return self._read_config(values)

    def _read_config(self, values: list[Any]) -> QueueConfig | None:
        return read_queue_config(values, bodies=self._bodies, app_version=self.app_version)

    async def names(self) -> list[QueueName]:
        """Return every queue that has something stored, declared ones first."""
        return list(dict.fromkeys([*await self.list.declared(), *await self.list.removed()]))

    async def all(self) -> list[QueueConfig]:
        """Return what the server says of all queues, in the order of their creation."""
        places = await self.list.declared()
        names = list(places)
        if not names:
            self._gone = {}
            return []
        replies = answered(
            await self._reach.ask_each(*(("HMGET", keys.part(name, "meta"), "v", "spec", "groups") for name in names))
        )
        read = {names[n]: self._read_config(values) for n, values in replies}
        found = [one for one in read.values() if one is not None]
        self._gone = {name: places[name] for name, one in read.items() if one is None}
        self._known = {one.name: one for one in found}
        self.some_partitioned = any(one.spec.partitions > 1 for one in found)
        return found

    async def set_removed_aside(self) -> None:
        """Let what `all` found removed be looked at now and then, no longer every time."""
        await self.list.set_aside(self._gone)

    async def newer(self, queue: QueueConfig) -> QueueConfig | None:
        """Return what is to be known instead of `queue`, which its server calls stale; None when it has grown."""
        found = await self.ask(queue.name)
        if found.version == queue.version and queue.partition:
            found = await self.align(queue.name, queue.partition)  # it is the partition that is behind
        laid = (found.spec.partitions, found.spec.older, found.spec.born)
        if laid != (queue.spec.partitions, queue.spec.older, queue.spec.born):
            return None
        return found.at(queue.partition)

    # Declaring and removing

    async def declare(self, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
        """Create a queue and groups, or change their settings."""
        while True:
            present = await self._read(spec.name)
            wanted = groups_or_default(groups, exists=present is not None)
            _check(present, spec, wanted)
            merged = {**(present.groups if present is not None else {}), **{group.name: group for group in wanted}}
            _check_shares(spec, merged.values())
            if present is None:
                # Listed first: a queue that is not listed would never be maintained.
                await self.list.add(spec.name)
            elif present.spec.partitions != spec.partitions:
                wanted = list(merged.values())  # their shares change
            if await self._declare(0, present, laid_out(present, spec), merged, wanted):
                # And again: another process may have taken it for a removed one until now.
                if present is None or not await self.list.has(spec.name):
                    await self.list.add(spec.name)
                await self._align_all(spec.name)
                return

    async def relay(self, queue: QueueConfig, spec: LaidMessages) -> None:
        """Change how a queue is laid out, unless another process has changed it meanwhile."""
        if await self._declare(0, queue, spec, queue.groups, ()):
            await self._align_all(queue.name)

    async def _align_all(self, name: QueueName) -> None:
        for partition in (await self.ask(name)).partitions[1:]:
            await self.align(name, partition)

    async def align(self, name: QueueName, partition: int) -> QueueConfig:
        """Give a partition the settings of the first one, which are the truth; return them.

        Any process that finds a partition behind does so: the one that changed the settings may have died.
        """
        while True:
            truth = await self.ask(name)
            there = await self._read(name, partition)
            if there is not None and there.spec.born != truth.spec.born:
                await self._remove(there, partition, None)
            elif there is not None and (gone := [group for group in there.groups if group not in truth.groups]):
                await self._remove(there, partition, gone[0])
            elif there is not None and there.version == truth.version:
                return truth
            else:
                groups = list(truth.groups.values())
                await self._declare(partition, there, truth.spec, truth.groups, groups, version=truth.version)

    async def _declare(
        self,
        partition: int,
        present: QueueConfig | None,
        spec: LaidMessages,
        merged: Mapping[GroupName, GroupSpec],
        wanted: Sequence[GroupSpec],
        *,
        version: bytes = b"",
    ) -> bool:
        """Declare one partition; say whether its settings were still those of `present`."""
        arguments: list[Argument] = [
            present.version if present is not None else b"",
            msgspec.json.encode(spec),
            msgspec.json.encode(list(merged.values())),
            secrets.token_hex(8),
            len(wanted),
            version,
            partition * SPAN,
            spec.partitions,
        ]
        for group in wanted:
            new = present is None or group.name not in present.groups
            arguments += _settings(group, spec.partitions, new=new)
        blocks = [key for group in wanted for key in keys.block(spec.name, group.name, partition)]
        names = (*keys.step(spec.name, partition), keys.inbox(spec.name, partition), *blocks)
        answer = await self._reach.run("declare", spec.name, names, arguments, signed=True)
        if answer[0] == b"type":
            raise BrokerUnavailable(
                self._reach.shown,
                f"the key {answer[1].decode()!r} that queue {spec.name!r} needs is a {answer[2].decode()}",
                "Remove that key, or give the queue another name.",
            )
        return bool(answer[0] != STALE)

    async def remove(self, name: QueueName, group: GroupName | None, actor: str | None) -> None:
        """Remove a queue or a group with all it holds."""
        while True:
            present = await self.ask(name)
            if group is not None:
                present.group(group)
            others = present.partitions[1:]
            if group is None:
                # The first partition goes last: until then a process that finds one missing may bring it back.
                await self._remove_others(name, others, actor)
            if await self._remove(present, 0, group, actor):
                break
        self._known.pop(name, None)
        if group is None:
            await self._remove_others(name, others, actor)
        else:
            await self._align_all(name)

    async def _remove_others(self, name: QueueName, partitions: range, actor: str | None) -> None:
        for partition in partitions:
            while (there := await self._read(name, partition)) is not None and not await self._remove(
                there, partition, None, actor
            ):
                pass

    async def _remove(
        self, present: QueueConfig, partition: int, group: GroupName | None, actor: str | None = None
    ) -> bool:
        """Remove one partition of a queue or group; say whether its settings were still those of `present`."""
        name, gone = present.name, list(present.groups) if group is None else [group]
        left = [spec for one, spec in present.groups.items() if one not in gone]
        blocks = (key for one in gone for key in keys.block(name, one, partition))
        names = (*keys.step(name, partition), *keys.arrivals(name, partition), *blocks)
        arguments: list[Argument] = [
            present.version, group or "", msgspec.json.encode(left), actor or "", *gone, call_name(),
        ]  # fmt: skip
        answer = await self._reach.run("remove", name, names, arguments)
        return bool(answer[0] != STALE)


def _check(present: QueueConfig | None, spec: QueueSpec, wanted: Sequence[GroupSpec]) -> None:
    """Refuse what cannot change in place."""
    if present is None:
        return
    if differs := changed_setting(present.spec, spec, QUEUE_FIXED):
        raise AlreadyExistsError("Queue", spec.name, differs)
    if spec.partitions < present.spec.partitions:
        fewest = f"{present.spec.partitions} or more: a queue may grow, but not shrink"
        raise InvalidSetting("partitions", spec.partitions, fewest)
    for group in wanted:
        old = present.groups.get(group.name)
        if old is not None and (differs := changed_setting(old, group, GROUP_FIXED)):
            raise AlreadyExistsError("Group", group.name, differs)


def _check_shares(spec: QueueSpec, groups: Iterable[GroupSpec]) -> None:
    """Refuse flow control that leaves a partition nothing."""
    for group in groups:
        for setting in ("max_messages", "max_bytes"):
            limit = getattr(group.flow_control, setting)
            if limit is not None and limit < spec.partitions:
                least = f"{spec.partitions} or more: each partition has its share of it"
                raise InvalidSetting(f"flow_control.{setting}", limit, least)


def _settings(group: GroupSpec, partitions: int, *, new: bool) -> list[Argument]:
    """Return a group's settings as `declare.lua` takes them."""
    backoff, flow = group.backoff, group.flow_control
    return [
        group.name,
        msgspec.json.encode(group),
        int(new),
        group.max_crashes or 0,
        group.max_delivery_attempts or 0,
        milliseconds(backoff.minimum) if backoff else 0,
        milliseconds(backoff.maximum) if backoff else 0,
        int(group.forgive_outages),
        share(flow.max_messages, partitions),
        share(flow.max_bytes, partitions),
        int(group.message_ordering),
    ]
