"""What a RabbitMQ server says of itself to any client: version, alarms, and how full the queues of the ledger are."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Final

from pamqp import commands

from godwit.admin.doctor.findings import Finding, note, ok, problem, warning
from godwit.brokers.rabbitmq import RabbitMQBroker
from godwit.brokers.rabbitmq.amqp.connection import Connection
from godwit.brokers.rabbitmq.amqp.errors import ServerRefused
from godwit.brokers.rabbitmq.amqp.frames import Outgoing
from godwit.brokers.rabbitmq.url import Address

OLD: Final = (3, 13)
NEARLY_FULL: Final = 0.8
_NOWHERE: Final = "godwit.doctor.nowhere"


async def protocol_findings(url: str, span: timedelta) -> tuple[list[Finding], list[str]]:
    """Return what can be found over AMQP, and the names of the server's queues that the ledger knows."""
    address = Address.from_url(url)
    broker = RabbitMQBroker(address)
    async with broker:
        queues = [
            (broker.names.group(queue.name, group.name), queue.name, group.name)
            for queue in await broker.stats()
            for group in queue.groups
        ]
        connection = await broker.connection()
        findings = [version(connection.version), await alarms(connection, span)]
        findings += [one for name, *place in queues if (one := await fill(connection, address, name, place))]
    return findings, [name for name, *_ in queues]


def version(found: tuple[int, ...]) -> Finding:
    """Judge the server's version."""
    shown = ".".join(map(str, found)) or "unknown"
    if found[:2] < OLD:
        why = "Versions before 3.13 get no fixes any more; in them a nack counts toward the delivery limit."
        return note("version", f"RabbitMQ {shown}", why, "Plan the way to 4.x (rabbitmq.com/release-information).")
    return ok("version", f"RabbitMQ {shown}")


async def alarms(connection: Connection, span: timedelta) -> Finding:
    """Publish a message that no queue takes: a server under an alarm answers that it blocks."""
    channel = await connection.channel(confirms=True)
    probe = Outgoing("", _NOWHERE, "doctor", "doctor", b"", 0, b"")
    with suppress(TimeoutError):
        async with asyncio.timeout(max(span.total_seconds(), 1)):
            await channel.publish([probe])  # no queue has this name: the message comes back
    if connection.blocked is not None:
        why = "The server takes no publishes: producers wait or fail until it is over."
        remedy = "Free memory or disk on the node that raises it (rabbitmq-diagnostics alarms)."
        return problem("alarms", f"the server blocks publishers ({connection.blocked})", why, remedy)
    return ok("alarms", "no memory or disk alarm blocks publishers")


async def fill(connection: Connection, address: Address, name: str, place: list[str]) -> Finding | None:
    """Judge how full a group's queue is."""
    channel = await connection.channel()
    try:
        answer = await channel.call(commands.Queue.Declare(queue=name, passive=True))
    except ServerRefused as refusal:
        why = "The ledger knows this group, the server does not: its messages are gone or on another server."
        remedy = "Declare the queue again, or remove it (godwit queues shows what the ledger knows)."
        return problem("queues", f"{name} ({refusal.text})", why, remedy)
    await channel.close()
    if answer.message_count >= NEARLY_FULL * address.max_length:
        found = (
            f"group {place[1]} of {place[0]} has {answer.message_count:,} of {address.max_length:,} messages waiting"
        )
        remedy = "Add workers, or raise max_length for new queues (?max_length= in the URL)."
        return warning("queues", found, "A full queue refuses publishes with QueueFull.", remedy)
    return None
