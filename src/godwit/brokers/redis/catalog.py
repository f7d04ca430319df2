"""What queues there are and how they are set up, as far as this process knows.

Scripts take a queue's keys and limits from the client; each says which version of the settings it means, and the server
refuses an old one.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from godwit.brokers.arguments import groups_or_default, one_server_only
from godwit.brokers.redis import keys
from godwit.brokers.redis.link import Argument
from godwit.brokers.redis.reach import Reach
from godwit.core.clock import milliseconds
from godwit.core.errors import AlreadyExistsError, BrokerUnavailable, GroupNotFound, QueueNotFound
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import (
    GROUP_FIXED,
    QUEUE_FIXED,
    GroupSpec,
    JournalBody,
    Overflow,
    QueueSpec,
    changed_setting,
)

_spec: Final = msgspec.json.Decoder(QueueSpec)
_groups: Final = msgspec.json.Decoder(list[GroupSpec])
STALE: Final = b"stale"


@dataclass(frozen=True, slots=True)
class Known:
    """A queue's settings at one version, and what scripts need of them."""

    name: QueueName
    version: bytes
    spec: QueueSpec
    groups: Mapping[GroupName, GroupSpec]
    keys: tuple[str, ...]
    """All keys of a publish."""
    limits: tuple[int, int, int, int]
    """Most messages, bytes and delayed messages (0: no limit), and the dedup window in ms."""
    names: tuple[str, ...]
    """Per group: its name, whether it drops, whether it keeps the order of keys."""
    numbers: Mapping[GroupName, int]
    """The groups' numbers, from 1."""
    ordered: bool
    """Whether any group keeps the order of keys."""
    keeps_body: bool
    ttl_ms: int
    arriving: dict[str, tuple[str, ...]]
    """The keys of `arrive.lua` by the lanes that occur, as far as they were needed."""

    def arrival_keys(self, lanes: str) -> tuple[str, ...]:
        """Return the keys of `arrive.lua` for messages of these lanes."""
        found = self.arriving.get(lanes)
        if found is None:
            wanted = ("wake", "expiring", *(f"l{lane}" for lane in lanes))
            places = [keys.GROUP_PARTS.index(name) for name in wanted]
            blocks = (keys.block(self.name, group) for group in self.groups)
            own = (*keys.step(self.name), *keys.arrivals(self.name)[:3])
            found = self.arriving[lanes] = (*own, *(block[place] for block in blocks for place in places))
        return found

    def group(self, name: GroupName) -> GroupSpec:
        """Return a group's settings."""
        spec = self.groups.get(name)
        if spec is None:
            raise GroupNotFound(self.name, name, tuple(self.groups))
        return spec


def known(version: bytes, spec: QueueSpec, groups: Sequence[GroupSpec], *, bodies: bool) -> Known:
    """Put together what is known of a queue."""
    blocks = [key for group in groups for key in keys.block(spec.name, group.name)]
    return Known(
        name=spec.name,
        version=version,
        spec=spec,
        groups={group.name: group for group in groups},
        keys=(*keys.step(spec.name), *keys.arrivals(spec.name), *blocks),
        limits=(spec.max_size or 0, spec.max_bytes or 0, spec.max_delayed or 0, milliseconds(spec.dedup_window)),
        names=tuple(
            word
            for group in groups
            for word in (group.name, "10"[group.overflow is not Overflow.DROP], "01"[group.message_ordering])
        ),
        numbers={group.name: number for number, group in enumerate(groups, 1)},
        ordered=any(group.message_ordering for group in groups),
        keeps_body=spec.journal_body is JournalBody.ON or (bodies and spec.journal_body is JournalBody.AUTO),
        ttl_ms=milliseconds(spec.ttl) if spec.ttl is not None else 0,
        arriving={},
    )


class Catalog:
    """The queues of a server; `bodies` is what `journal_body = auto` means."""

    def __init__(self, reach: Reach, *, bodies: bool) -> None:
        self._reach = reach
        self._bodies = bodies
        self._known: dict[QueueName, Known] = {}

    def known(self, name: QueueName) -> Known | None:
        """Return what is known of a queue without asking the server."""
        return self._known.get(name)

    async def find(self, name: QueueName) -> Known:
        """Return what is known of a queue, asking the server the first time."""
        return self._known.get(name) or await self.ask(name)

    async def ask(self, name: QueueName) -> Known:
        """Return what the server says of a queue."""
        found = await self._read(name)
        if found is None:
            self._known.pop(name, None)
            raise QueueNotFound(name, tuple([one.name for one in await self.all()]))
        self._known[name] = found
        return found

    async def _read(self, name: QueueName) -> Known | None:
        (values,) = await self._reach.ask(("HMGET", keys.part(name, "meta"), "v", "spec", "groups"))
        return _read(values, bodies=self._bodies)

    async def names(self) -> list[QueueName]:
        """Return every queue there is or was, in the order of their creation."""
        (names,) = await self._reach.ask(("ZRANGE", keys.QUEUES, 0, -1))
        return [name.decode() for name in names]

    async def all(self) -> list[Known]:
        """Return what the server says of all queues, in the order of their creation."""
        names = await self.names()
        if not names:
            return []
        replies = await self._reach.ask(*(("HMGET", keys.part(name, "meta"), "v", "spec", "groups") for name in names))
        found = [one for values in replies if (one := _read(values, bodies=self._bodies)) is not None]
        self._known = {one.name: one for one in found}
        return found

    # Declaring and removing

    async def declare(self, spec: QueueSpec, groups: Sequence[GroupSpec]) -> None:
        """Create a queue and groups, or change their settings."""
        one_server_only(spec)
        while True:
            present = await self._read(spec.name)
            wanted = groups_or_default(groups, exists=present is not None)
            _check(present, spec, wanted)
            if present is None:
                # Listed first: a queue that nobody finds would never be looked after.
                place = (await self._reach.ask(("INCR", keys.CREATED)))[0]
                await self._reach.ask(("ZADD", keys.QUEUES, place, spec.name))
            answer = await self._declare(present, spec, wanted)
            if answer[0] == b"type":
                raise BrokerUnavailable(
                    self._reach.shown,
                    f"the key {answer[1].decode()!r} that queue {spec.name!r} needs is a {answer[2].decode()}",
                    "Remove that key, or give the queue another name.",
                )
            if answer[0] != STALE:
                await self.ask(spec.name)
                return

    async def _declare(self, present: Known | None, spec: QueueSpec, wanted: Sequence[GroupSpec]) -> Any:
        merged = dict(present.groups) if present is not None else {}
        merged.update((group.name, group) for group in wanted)
        arguments: list[Argument] = [
            present.version if present is not None else b"",
            msgspec.json.encode(spec),
            msgspec.json.encode(list(merged.values())),
            secrets.token_hex(8),
            len(wanted),
        ]
        for group in wanted:
            new = present is None or group.name not in present.groups
            arguments += _settings(group, new=new)
        blocks = [key for group in wanted for key in keys.block(spec.name, group.name)]
        names = (*keys.step(spec.name), keys.inbox(spec.name), *blocks)
        return await self._reach.run("declare", spec.name, names, arguments, signed=True)

    async def remove(self, name: QueueName, group: GroupName | None) -> None:
        """Remove a queue or a group with all it holds."""
        while True:
            present = await self.ask(name)
            if group is not None:
                present.group(group)
            gone = list(present.groups) if group is None else [group]
            left = [spec for one, spec in present.groups.items() if one not in gone]
            names = (*keys.step(name), *keys.arrivals(name), *(key for one in gone for key in keys.block(name, one)))
            arguments: list[Argument] = [present.version, group or "", msgspec.json.encode(left), *gone]
            answer = await self._reach.run("remove", name, names, arguments)
            self._known.pop(name, None)
            if answer[0] != STALE:
                return


def _read(values: list[Any], *, bodies: bool) -> Known | None:
    version, spec, groups = values
    return None if spec is None else known(version, _spec.decode(spec), _groups.decode(groups), bodies=bodies)


def _check(present: Known | None, spec: QueueSpec, wanted: Sequence[GroupSpec]) -> None:
    """Refuse what cannot change in place."""
    if present is None:
        return
    if differs := changed_setting(present.spec, spec, QUEUE_FIXED):
        raise AlreadyExistsError("Queue", spec.name, differs)
    for group in wanted:
        old = present.groups.get(group.name)
        if old is not None and (differs := changed_setting(old, group, GROUP_FIXED)):
            raise AlreadyExistsError("Group", group.name, differs)


def _settings(group: GroupSpec, *, new: bool) -> list[Argument]:
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
        flow.max_messages or 0,
        flow.max_bytes or 0,
        int(group.message_ordering),
    ]
