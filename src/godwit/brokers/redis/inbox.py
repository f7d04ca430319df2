"""The inbox: what producers in other languages add with plain XADD becomes messages of the queue.

An entry holds `payload` or `data`, a JSON text, and may hold `id`, `type`, `priority` (0 to 100), `ordering_key` and
`metadata`, a JSON object whose names are written as in JavaScript or as in Python (`userId`, `user_id`); names that
metadata has not are kept in its headers.
Entries are moved by the publish script, where limits, deduplication, groups and journal apply; one that cannot be read
becomes a dead letter of every group, with its fields as they came.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import blake2s
from typing import Any, Final

import msgspec

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.publish.publisher import RedisPublisher
from godwit.core.error_text import error_text
from godwit.core.errors import GodwitError, InvalidMessage, PartialPublish, QueueFull
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, MessageMetadata
from godwit.core.names import QueueName

SPOILED: Final = "godwit.inbox.spoiled"
"""The type of messages made of entries that cannot be read."""
KEPT_FIELDS: Final = 100
KEPT_NAME: Final = 200
KEPT_BYTES: Final = 50_000
"""How much is kept of an entry that cannot be read: its beginning, and how long it was."""
LONGEST_IN_ID: Final = 190
_FIELDS: Final = frozenset({"payload", "data", "id", "type", "priority", "ordering_key", "metadata"})
_METADATA: Final = {
    alias: name
    for name in MessageMetadata.__struct_fields__
    for alias in (name, re.sub("_(.)", lambda found: found[1].upper(), name))
}
"""The fields of metadata by both of their names."""


class Inbox:
    """Moves entries from inboxes into their queues."""

    def __init__(self, reach: ScriptRunner, catalog: Catalog, publisher: RedisPublisher) -> None:
        self._reach, self._catalog, self._publisher = reach, catalog, publisher

    async def move(self, queue: QueueName, *, most: int) -> int:
        """Move what is in a queue's inbox, as far as there is room; any number of processes may do so at once.

        After `most` entries the rest is left for the next call.
        """
        moved = 0
        while moved < most:
            (entries,) = await self._reach.ask(("XRANGE", keys.inbox(queue), "-", "+", "COUNT", PUBLISH_CHUNK))
            if not entries:
                return moved
            envelopes, dead = read_entries(queue, entries)
            tickets = [entry[0].decode() for entry in entries]
            try:
                await self._accept(envelopes, tickets, dead)
            except (QueueFull, PartialPublish, InvalidMessage):
                if not await self._move_one_by_one(envelopes, tickets, dead):
                    return moved
            moved += len(entries)
        return moved

    async def _move_one_by_one(
        self, envelopes: Sequence[Envelope], tickets: Sequence[str], dead: frozenset[int]
    ) -> bool:
        """Move what fits; say whether everything did."""
        for place, (envelope, ticket) in enumerate(zip(envelopes, tickets, strict=True), 1):
            try:
                spoiled = frozenset({1} & {int(place in dead)})
                await self._accept([envelope], [ticket], spoiled)
            except QueueFull:
                return False
            except InvalidMessage as error:
                unusable = seal(_spoiled(envelope.queue, ticket, {}, str(error)))
                await self._accept([unusable], [ticket], frozenset({1}))
        return True

    async def _accept(self, envelopes: Sequence[Envelope], tickets: Sequence[str], dead: frozenset[int]) -> None:
        """Move entries: in one step into a queue of one partition, else they are published and then deleted.

        Should this process end between the two, or another move them too, they are recognised: by their ids, or as
        moved before where no ids are remembered.
        """
        queue = await self._catalog.find(envelopes[0].queue)
        if queue.spec.partitions == 1:
            await self._publisher.accept(envelopes, mode="inbox", tickets=tickets, dead=dead)
            return
        if queue.limits[3]:
            await self._publisher.accept(envelopes, dead=dead)
        else:
            marks = [f"inbox#{ticket}" for ticket in tickets]
            await self._publisher.accept(envelopes, mode="moved", tickets=marks, dead=dead)
        await self._reach.ask(("XDEL", keys.inbox(queue.name), *tickets))


def read_entries(queue: QueueName, entries: Sequence[Any]) -> tuple[list[Envelope], frozenset[int]]:
    """Return the messages of entries, and the places (from 1) of those that could not be read."""
    envelopes: list[Envelope] = []
    dead: set[int] = set()
    for place, (entry, fields) in enumerate(entries, 1):
        number = entry.decode()
        named = {_text(fields[n]): fields[n + 1] for n in range(0, len(fields), 2)}
        try:
            envelopes.append(seal(_message(queue, number, named)))
        except (GodwitError, msgspec.MsgspecError, ValueError, RecursionError) as error:
            dead.add(place)
            envelopes.append(seal(_spoiled(queue, number, named, error_text(error))))
    return envelopes, frozenset(dead)


def _message(queue: QueueName, entry: str, fields: dict[str, bytes]) -> Message:
    unknown = set(fields) - _FIELDS
    if unknown or ("payload" in fields) == ("data" in fields):
        raise ValueError("it must have either `payload` or `data`, and no unknown fields")
    given: dict[str, Any] = {"id": _id(queue, entry), "created_at": _time(entry)}
    given.update((name, fields[name].decode()) for name in ("id", "type", "ordering_key") if name in fields)
    if "priority" in fields:
        given["priority"] = int(fields["priority"])
    if "metadata" in fields:
        given["metadata"] = _metadata(msgspec.json.decode(fields["metadata"], type=dict[str, Any] | None))
    payload = msgspec.json.decode(fields.get("payload", fields.get("data", b"")))
    return Message(**given, queue=queue, payload=payload)


def _metadata(fields: dict[str, Any] | None) -> MessageMetadata:
    known: dict[str, Any] = {}
    more: dict[str, str] = {}
    for name, value in (fields or {}).items():
        if name in _METADATA:
            known[_METADATA[name]] = value
        else:
            more[name] = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    headers = known.get("headers", {})
    if more and isinstance(headers, dict):
        known["headers"] = more | headers
    return msgspec.convert({name: value for name, value in known.items() if value is not None}, MessageMetadata)


def _spoiled(queue: QueueName, entry: str, fields: dict[str, bytes], problem: str) -> Message:
    kept: dict[str, str] = {}
    for name, value in list(fields.items())[:KEPT_FIELDS]:
        text = _text(value[:KEPT_BYTES])
        kept[name[:KEPT_NAME]] = text if len(value) <= KEPT_BYTES else f"{text}... ({len(value):,} bytes)"
    return Message(
        id=_id(queue, entry),
        queue=queue,
        type=SPOILED,
        created_at=_time(entry),
        payload={"entry": entry, "problem": problem, "fields": kept},
    )


def _id(queue: QueueName, entry: str) -> str:
    """Return the id of an entry: its own behind the name of the queue, or behind a digest of a long name."""
    if len(queue) > LONGEST_IN_ID:
        return f"{queue[:LONGEST_IN_ID]}~{blake2s(queue.encode(), digest_size=6).hexdigest()}:{entry}"
    return f"{queue}:{entry}"


def _text(value: bytes) -> str:
    """Return bytes as text from which they can be restored: what is not UTF-8 is written in hexadecimal."""
    return value.decode("utf-8", "backslashreplace")


def _time(entry: str) -> datetime:
    """Return when an entry was added: its id begins with the server's time, unless its producer chose another."""
    milliseconds = int(entry.partition("-")[0])
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
