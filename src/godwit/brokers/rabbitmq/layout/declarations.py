"""Declaring on the server: levels of delays once per virtual host, queues, groups, and all again after an outage."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pamqp import commands
from pamqp.base import Frame

from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.errors import ServerRefused
from godwit.brokers.rabbitmq.amqp.reconnect import ReconnectingConnection
from godwit.brokers.rabbitmq.layout.delays import LEVELS, level_name, levels
from godwit.brokers.rabbitmq.layout.topology import Names, explained, group_frames, queue_frames
from godwit.brokers.rabbitmq.url import Address
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec

_NOT_FOUND: Final = 404


class Declarer:
    """Knows what this broker needs on the server."""

    def __init__(self, address: Address, names: Names) -> None:
        self.known: dict[QueueName, tuple[QueueSpec, set[GroupName]]] = {}
        self._address, self._names = address, names

    async def restore(self, connection: Connection) -> None:
        """Declare everything on a new connection; what is there already stays as it is."""
        if not await self._exists(connection, level_name(LEVELS - 1)):
            await self._call(connection, levels())
        for spec, groups in self.known.values():
            await self.declare(connection, spec, sorted(groups))

    async def declare(self, connection: Connection, spec: QueueSpec, groups: Iterable[GroupName]) -> None:
        """Declare a queue and groups."""
        frames = list(queue_frames(self._names, spec.name))
        for group in groups:
            frames += group_frames(self._names, self._address, spec, group)
        await self._call(connection, frames)

    def note(self, spec: QueueSpec, groups: Sequence[GroupName]) -> None:
        """Remember what was declared; the first settings count, since the server cannot change them."""
        first, known = self.known.get(spec.name, (spec, set()))
        self.known[spec.name] = (first, known | set(groups))

    async def remove(
        self, link: ReconnectingConnection, queue: QueueName, groups: Iterable[GroupName], *, whole: bool
    ) -> None:
        """Delete groups' queues, and with the `whole` queue its exchanges and dead letter queue."""
        names = self._names
        frames: list[Frame] = [commands.Queue.Delete(queue=names.group(queue, group)) for group in groups]
        if whole:
            frames += [
                commands.Queue.Delete(queue=names.dlq(queue)),
                commands.Exchange.Delete(exchange=names.exchange(queue)),
                commands.Exchange.Delete(exchange=names.dlx(queue)),
            ]
            self.known.pop(queue, None)
        elif queue in self.known:
            spec, known = self.known[queue]
            self.known[queue] = (spec, known - set(groups))
        await self._call(await link.connection(), frames)

    async def purge(self, link: ReconnectingConnection, queue: QueueName, groups: Iterable[GroupName]) -> None:
        """Empty groups' queues."""
        frames = [commands.Queue.Purge(queue=self._names.group(queue, group)) for group in groups]
        await self._call(await link.connection(), frames)

    async def waiting(self, link: ReconnectingConnection, server_queue: str) -> int:
        """Return how many messages the server has ready in a queue."""
        channel = await (await link.connection()).channel()
        answer = await channel.call(commands.Queue.Declare(queue=server_queue, passive=True))
        await channel.close()
        return int(answer.message_count)

    async def _call(self, connection: Connection, frames: Iterable[Frame]) -> None:
        # A refusal closes the channel, so each attempt has its own.
        channel = await connection.channel()
        try:
            await channel.call_all(list(frames))
        except ServerRefused as refusal:
            if refusal.code == _NOT_FOUND:
                raise
            raise explained(refusal, self._address) from refusal
        await channel.close()

    async def _exists(self, connection: Connection, queue: str) -> bool:
        channel = await connection.channel()
        try:
            await channel.call(commands.Queue.Declare(queue=queue, passive=True))
        except ServerRefused as refusal:
            if refusal.code == _NOT_FOUND:
                return False
            raise explained(refusal, self._address) from refusal
        await channel.close()
        return True
