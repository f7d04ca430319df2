"""What Godwit declares on a RabbitMQ server, under which names and with which arguments.

Per queue: a durable topic exchange of its name, a direct dead-letter exchange `NAME##dlx`, a quorum queue `NAME##dlq`
behind it (key `dlq`). Per group: a quorum queue `NAME#GROUP`, bound to the exchange and to the exchange of due delays.
`#` cannot occur in our names, so derived names never collide.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

from pamqp import commands
from pamqp.base import Frame

from godwit.brokers.rabbitmq.amqp.errors import ServerRefused
from godwit.brokers.rabbitmq.layout.delays import DUE, LONGEST_TTL_MS, due_binding
from godwit.brokers.rabbitmq.url import Address
from godwit.core.clock import milliseconds
from godwit.core.errors import BrokerUnavailable, GodwitError, TopologyMismatch
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec

DEAD_KEY: Final = "dlq"
GROUP_SIZE: Final = 3
DELIVERY_LIMIT: Final = 50
"""The last resort against a message that takes down workers of hosts that share no ledger."""
NO_DELIVERY_LIMIT: Final = 2**31 - 1
"""For queues whose messages must not be dropped. RabbitMQ 4 would do so at the twentieth return, before it there was no
limit, and only 4 knows a word for none: this number means the same to all of them, so that no upgrade changes it."""
_LONGEST_NAME: Final = 127
"""What the protocol allows an exchange."""
_MOST_LENGTH: Final = 2**31 - 1
_INEQUIVALENT: Final = re.compile(
    r"inequivalent arg '([^']+)' for (?:queue|exchange) '([^']+)'.*?: received (.+?) but current is (.+)$"
)


@dataclass(frozen=True, kw_only=True)
class QueueNames:
    """How one queue is called on the server; None leaves a name to be derived."""

    exchange: str | None = None
    queue: str | None = None
    """The quorum queue of its one group."""
    dlx: str | None = None
    dlq: str | None = None
    routing_keys: tuple[str, ...] = ("#",)
    """Which messages of the exchange reach its groups, by type."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """From our names to the server's."""

    namespace: str = ""
    given: Mapping[QueueName, QueueNames] = field(default_factory=dict)

    def of(self, queue: QueueName) -> QueueNames:
        """Return what was given for a queue."""
        return self.given.get(queue, QueueNames())

    def exchange(self, queue: QueueName) -> str:
        """Return the exchange a queue's messages are published to."""
        return self.of(queue).exchange or self._short(queue)

    def dlx(self, queue: QueueName) -> str:
        """Return a queue's dead-letter exchange."""
        return self.of(queue).dlx or self._short(f"{queue}##dlx")

    def dlq(self, queue: QueueName) -> str:
        """Return a queue's dead letter queue."""
        return self.of(queue).dlq or self._short(f"{queue}##dlq")

    def group(self, queue: QueueName, group: GroupName) -> str:
        """Return the quorum queue of a group."""
        return self.of(queue).queue or self._short(f"{queue}#{group}")

    def mark(self, queue: QueueName, group: GroupName) -> str:
        """Return the word that leads a due message to a group."""
        return self.mark_of(self.group(queue, group))

    @staticmethod
    def mark_of(server_queue: str) -> str:
        """Return the word that leads a due message to a queue of the server."""
        return blake2b(server_queue.encode(), digest_size=10).hexdigest()

    def _short(self, name: str) -> str:
        full = f"{self.namespace}{name}"
        if len(full) <= _LONGEST_NAME:
            return full
        return f"{full[:90]}#{blake2b(full.encode(), digest_size=16).hexdigest()}"


def queue_frames(names: Names, queue: QueueName) -> Iterator[Frame]:
    """Give the calls that declare a queue's exchanges and its dead letter queue."""
    yield commands.Exchange.Declare(exchange=names.exchange(queue), exchange_type="topic", durable=True)
    yield commands.Exchange.Declare(exchange=names.dlx(queue), exchange_type="direct", durable=True)
    dlq = names.dlq(queue)
    yield commands.Queue.Declare(
        queue=dlq,
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-quorum-initial-group-size": GROUP_SIZE,
            "x-delivery-limit": NO_DELIVERY_LIMIT,
        },
    )
    yield commands.Queue.Bind(queue=dlq, exchange=names.dlx(queue), routing_key=DEAD_KEY)


def group_frames(names: Names, address: Address, spec: QueueSpec, group: GroupName) -> Iterator[Frame]:
    """Give the calls that declare a group's queue and lead messages to it."""
    queue = spec.name
    name = names.group(queue, group)
    yield commands.Queue.Declare(queue=name, durable=True, arguments=group_arguments(names, address, spec))
    yield commands.Queue.Bind(queue=name, exchange=DUE, routing_key=due_binding(names.mark(queue, group)))
    for key in names.of(queue).routing_keys:
        yield commands.Queue.Bind(queue=name, exchange=names.exchange(queue), routing_key=key)


def group_arguments(names: Names, address: Address, spec: QueueSpec) -> dict[str, Any]:
    """Return what a group's queue is declared with; none of it can be changed later."""
    own_ttl = milliseconds(spec.ttl) if spec.ttl is not None else 0
    return {
        "x-queue-type": "quorum",
        "x-quorum-initial-group-size": GROUP_SIZE,
        "x-overflow": "reject-publish",
        "x-max-length": min(max(address.max_length, spec.max_size or 0), _MOST_LENGTH),
        # A queue's own ttl is kept by Godwit to the millisecond; the server's is the outer limit.
        "x-message-ttl": min(max(int(address.message_ttl_seconds * 1000), own_ttl), LONGEST_TTL_MS),
        "x-dead-letter-exchange": names.dlx(spec.name),
        "x-dead-letter-routing-key": DEAD_KEY,
        "x-dead-letter-strategy": "at-least-once",
        "x-delivery-limit": DELIVERY_LIMIT,
    }


def explained(refusal: ServerRefused, address: Address) -> GodwitError:
    """Return what the server's refusal of a declaration means to its caller."""
    found = _INEQUIVALENT.search(refusal.text)
    if found is not None:
        argument, name, received, current = found.groups()
        return TopologyMismatch(name, argument, received, current)
    if refusal.code == 403:  # noqa: PLR2004 (AMQP's ACCESS_REFUSED)
        remedy = f"Give user {address.user} the permissions configure, write and read on virtual host {address.vhost}."
        return BrokerUnavailable(address.shown, refusal.text, remedy)
    if refusal.code in (503, 540, 541):
        remedy = "Enable the plugin or the feature flag it names (rabbitmqctl list_feature_flags), then try again."
        return BrokerUnavailable(address.shown, refusal.text, remedy)
    return BrokerUnavailable(address.shown, str(refusal), "See the server's log; the declaration changed nothing here.")
