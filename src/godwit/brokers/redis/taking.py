"""Pulling: leases by script, and the deliveries made of them."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from godwit.brokers.contract import Delivery, HandBack, Settlement
from godwit.brokers.redis import keys
from godwit.brokers.redis.catalog import Catalog
from godwit.brokers.redis.encoding import Copy, read_copy
from godwit.brokers.redis.held import Held, HeldLeases
from godwit.brokers.redis.reach import Reach
from godwit.brokers.redis.replies import LinkLost
from godwit.core.errors import BrokerUnavailable
from godwit.core.names import AckId, GroupName, QueueName

PART: Final = 200
"""Most leases one script call makes."""
_FACTS: Final = 6
_TOKEN_BYTES: Final = 6
Settle = Callable[[Sequence[Settlement]], Awaitable[object]]


class Pulled(NamedTuple):
    """What a pull found: deliveries, ms until something is due by itself (-1: nothing), entries in the inbox."""

    deliveries: list[Delivery]
    due_ms: int
    inbox: int


class Taker:
    """Leases messages."""

    def __init__(self, reach: Reach, catalog: Catalog, held: HeldLeases, settle: Settle) -> None:
        self._reach, self._catalog, self._held, self._settle = reach, catalog, held, settle

    async def pull(
        self, queue: QueueName, group: GroupName, *, worker: str, limit: int, lease_ms: int, max_bytes: int | None
    ) -> Pulled:
        """Lease up to `limit` messages, in parts of what one script call may do."""
        deliveries: list[Delivery] = []
        taken_bytes = -1
        while True:
            wanted = min(limit - len(deliveries), PART)
            part = await self._part(queue, group, worker, wanted, lease_ms, max_bytes or 0, taken_bytes)
            deliveries += part.deliveries
            if len(part.deliveries) < wanted or len(deliveries) >= limit:
                return Pulled(deliveries, part.due_ms, part.inbox)
            taken_bytes = sum(delivery.envelope.size for delivery in deliveries)

    async def _part(
        self, queue: QueueName, group: GroupName, worker: str, limit: int, lease_ms: int, max_bytes: int, taken: int
    ) -> Pulled:
        names = (*keys.step(queue), *keys.block(queue, group), keys.inbox(queue))
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        arguments = (group, worker, limit, lease_ms, max_bytes, token, taken)
        try:
            answer = await self._reach.run("pull", queue, names, arguments, again=False, signed=True)
        except BrokerUnavailable as error:
            if not isinstance(error.__cause__, LinkLost):
                raise
            await self._give_back(queue, group, token)
            return await self._part(queue, group, worker, limit, lease_ms, max_bytes, taken)
        if answer[0] != b"ok":
            (await self._catalog.ask(queue)).group(group)  # says what is missing
            return Pulled([], 0, 0)  # declared again meanwhile
        return Pulled(self._deliveries(queue, group, worker, lease_ms, token, answer), answer[2], answer[5])

    async def _give_back(self, queue: QueueName, group: GroupName, token: str) -> None:
        """Hand back what a pull may have leased whose reply was lost, once the server answers again."""
        leases = keys.block(queue, group)[keys.GROUP_PARTS.index("leases")]
        (members,) = await self._reach.ask(("ZRANGE", leases, 0, -1))
        prefix, suffix = ack_prefix(queue, group), f":{token}"
        lost = [AckId(prefix + one) for one in (member.decode() for member in members) if one.endswith(suffix)]
        if lost:
            await self._settle([HandBack(ack_id) for ack_id in lost])

    def _deliveries(
        self, queue: QueueName, group: GroupName, worker: str, lease_ms: int, token: str, answer: Sequence[Any]
    ) -> list[Delivery]:
        now_ms, ordered = answer[1], bool(answer[4])
        prefix, until_ms, held = ack_prefix(queue, group), now_ms + lease_ms, self._held
        deliveries = []
        for place in range(_FACTS, len(answer), 3):
            source, ref, value = answer[place : place + 3]
            copy = read_copy(queue, source, ref, value)
            member = f"{source.decode()}{ref.decode()}:{token}"
            ack_id = AckId(prefix + member)
            held[ack_id] = Held(copy, member, worker, ordered)
            deliveries.append(_delivery(ack_id, queue, group, copy, now_ms, until_ms))
        held.bound()
        return deliveries


def _delivery(ack_id: AckId, queue: QueueName, group: GroupName, copy: Copy, now_ms: int, until_ms: int) -> Delivery:
    return Delivery(
        ack_id, queue, group, copy.envelope, copy.seq, copy.attempt + 1, copy.failures, copy.crashes, copy.errors,
        copy.ready_ms, now_ms, until_ms,
    )  # fmt: skip


def ack_prefix(queue: QueueName, group: GroupName, partition: int = 0) -> str:
    """Return what the ack ids of a group begin with."""
    return f"{queue}#{partition}#{group}#"
