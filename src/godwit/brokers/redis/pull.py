"""Pulling: leases by script, and the deliveries made of them."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, NamedTuple

from godwit.brokers.contract import Delivery, HandBack, Place, Settlement
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.errors import LinkLost, ServedClient
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.client.scripts import script
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.codec import StoredCopy, read_copy
from godwit.brokers.redis.lease_cache import CachedLease, LeaseCache
from godwit.core.errors import BrokerUnavailable, GodwitError
from godwit.core.names import AckId, GroupName, QueueName

PART: Final = 200
"""Most leases one script call makes."""
GOOD_PART: Final = 100
"""How many messages of one partition make a call worth while, before others are asked."""
_FACTS: Final = 7
_TOKEN_BYTES: Final = 6
PULL_ONE: Final = script("pull_one")
_ONE_PLACES: Final = [
    keys.GROUP_PARTS.index(name) for name in ("group", "leases", "batches", "wake", "l0", "l1", "l2", "l3")
]
"""The keys of a group that `pull_one.lua` takes."""
Settle = Callable[[Sequence[Settlement]], Awaitable[object]]


class Pulled(NamedTuple):
    """What a pull found: deliveries, ms until something is due by itself (-1: nothing), entries in the inbox."""

    deliveries: list[Delivery]
    due_ms: int
    inbox: int


class PullOrder(NamedTuple):
    """What every part of a pull asks for; `max_bytes` is 0 for no limit."""

    queue: QueueName
    group: GroupName
    worker: str
    lease_ms: int
    max_bytes: int


class RedisPuller:
    """Leases messages."""

    def __init__(self, reach: ScriptRunner, catalog: Catalog, held: LeaseCache, settle: Settle) -> None:
        self._reach, self._catalog, self._held, self._settle = reach, catalog, held, settle
        self._turns: Counter[Place] = Counter()

    async def pull(
        self, queue: QueueName, group: GroupName, *, worker: str, limit: int, lease_ms: int, max_bytes: int | None
    ) -> Pulled:
        """Lease up to `limit` messages of all partitions."""
        order = PullOrder(queue, group, worker, lease_ms, max_bytes or 0)
        partitions = self._catalog.partitions_of(queue)
        if partitions == 1:
            pulled = await self._from(order, 0, limit, -1)
            partitions = self._catalog.partitions_of(queue)
            if partitions == 1 or pulled.deliveries:
                return pulled
        first = self._turns[queue, group] % partitions
        self._turns[queue, group] += _first_asked(order, limit)
        return await self._from_all(order, [*range(first, partitions), *range(first)], limit)

    async def _from_all(self, order: PullOrder, partitions: list[int], limit: int) -> Pulled:
        """Take a good part from few partitions; when they have not enough, ask all others at once.

        Who comes first changes with every pull, so that all are served alike. With a limit of bytes they come one after
        the other.
        """
        deliveries: list[Delivery] = []
        dues: list[int] = []
        inbox = 0
        asked = partitions[: _first_asked(order, limit)]
        while asked:
            left = limit - len(deliveries)
            shares = [left // len(asked) + (place < left % len(asked)) for place in range(len(asked))]
            taken = sum(delivery.envelope.size for delivery in deliveries) if deliveries else -1
            found = await asyncio.gather(
                *(self._from(order, one, most, taken) for one, most in zip(asked, shares, strict=True)),
                return_exceptions=True,
            )
            deliveries += [delivery for part in found if isinstance(part, Pulled) for delivery in part.deliveries]
            if (problem := next((part for part in found if isinstance(part, BaseException)), None)) is not None:
                if deliveries and isinstance(problem, GodwitError):
                    break  # one server is away: what the others have is not kept waiting
                raise problem
            parts = [part for part in found if isinstance(part, Pulled)]
            dues += [part.due_ms for part in parts if part.due_ms >= 0]
            inbox += sum(part.inbox for part in parts)
            more = [one for one, part, most in zip(asked, parts, shares, strict=True) if len(part.deliveries) == most]
            partitions = [*partitions[len(asked) :], *more]
            left = limit - len(deliveries)
            asked = partitions[: min(1, left) if order.max_bytes else left]
        return Pulled(deliveries, 0 if partitions else min(dues, default=-1), inbox)

    async def _from(self, order: PullOrder, partition: int, limit: int, taken_bytes: int) -> Pulled:
        """Lease up to `limit` messages of a partition, in parts of what one script call may do."""
        deliveries: list[Delivery] = []
        while True:
            wanted = min(limit - len(deliveries), PART)
            part = await self._part(order, partition, wanted, taken_bytes)
            deliveries += part.deliveries
            if len(part.deliveries) < wanted or len(deliveries) >= limit:
                return Pulled(deliveries, part.due_ms, part.inbox)
            taken_bytes = max(taken_bytes, 0) + sum(delivery.envelope.size for delivery in part.deliveries)

    def waiting(self, order: PullOrder, run_id: str) -> tuple[str, Sequence[Argument]]:
        """Return the token and the command of a pull that waits on the server for a marker of partition 0."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        queue, group, worker, length_ms, _ = order
        block = keys.block(queue, group)
        names = (*keys.step(queue), *(block[place] for place in _ONE_PLACES))
        arguments = (self._reach.now(), queue, group, f"g:{group}", worker, length_ms, token, *self._version(), run_id)
        return token, ("EVALSHA", PULL_ONE.sha, len(names), *names, *arguments)

    def _version(self) -> tuple[Argument, ...]:
        """Return the application's version for a script, where it has one."""
        version = self._catalog.app_version
        return () if version is None else (version,)

    def answered(self, order: PullOrder, token: str, answer: Any) -> Pulled | None:
        """Return what a pull that waited found, or None when it did not look."""
        if not isinstance(answer, list) or answer[0] != b"ok":
            return None
        return Pulled(self._deliveries(order, 0, token, answer), answer[2], answer[5])

    async def give_back(self, order: PullOrder, token: str, client: ServedClient) -> None:
        """Hand back what a pull that waited may have leased before its connection broke."""
        await self._give_back(order, 0, token, client)

    async def _part(self, order: PullOrder, partition: int, limit: int, taken: int) -> Pulled:
        queue, group = order.queue, order.group
        names = (*keys.step(queue, partition), *keys.block(queue, group, partition), keys.inbox(queue, partition))
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        arguments = (group, order.worker, limit, order.lease_ms, order.max_bytes, token, taken, *self._version())
        try:
            answer = await self._reach.run("pull", queue, names, arguments, again=False, signed=True)
        except BrokerUnavailable as error:
            if not isinstance(error.__cause__, LinkLost):
                raise
            await self._give_back(order, partition, token, error.__cause__.client)
            return await self._part(order, partition, limit, taken)
        if answer[0] != b"ok":
            (await self._catalog.ask(queue)).group(group)  # says what is missing
            if partition:
                await self._catalog.align(queue, partition)
            return Pulled([], 0, 0)  # declared again meanwhile
        if not self._catalog.is_current(queue, answer[6]):
            await self._catalog.ask(queue)
        return Pulled(self._deliveries(order, partition, token, answer), answer[2], answer[5])

    async def _give_back(self, order: PullOrder, partition: int, token: str, client: ServedClient) -> None:
        """Hand back what a pull may have leased whose reply was lost, once the server answers again.

        It may not have read the call yet, when it stood still: it leases nothing after this look.
        """
        leases = keys.block(order.queue, order.group, partition)[keys.GROUP_PARTS.index("leases")]
        await self._reach.end_client(leases, client)
        (members,) = await self._reach.ask(("ZRANGE", leases, 0, -1))
        prefix, suffix = ack_prefix(order.queue, order.group, partition), f":{token}"
        lost = [AckId(prefix + one) for one in (member.decode() for member in members) if one.endswith(suffix)]
        if lost:
            await self._settle([HandBack(ack_id) for ack_id in lost])

    def _deliveries(self, order: PullOrder, partition: int, token: str, answer: Sequence[Any]) -> list[Delivery]:
        queue, group, worker, lease_ms, _ = order
        now_ms, ordered = answer[1], bool(answer[4])
        prefix, until_ms, held = ack_prefix(queue, group, partition), now_ms + lease_ms, self._held
        deliveries = []
        for place in range(_FACTS, len(answer), 3):
            source, ref, value = answer[place : place + 3]
            copy = read_copy(queue, source, ref, value)
            member = f"{source.decode()}{ref.decode()}:{token}"
            ack_id = AckId(prefix + member)
            held[ack_id] = CachedLease(copy, member, worker, ordered)
            deliveries.append(_delivery(ack_id, queue, group, copy, now_ms, until_ms))
        held.bound()
        return deliveries


def _first_asked(order: PullOrder, limit: int) -> int:
    """Return how many partitions a pull asks first."""
    return 1 if order.max_bytes else -(-limit // GOOD_PART)


def _delivery(
    ack_id: AckId, queue: QueueName, group: GroupName, copy: StoredCopy, now_ms: int, until_ms: int
) -> Delivery:
    return Delivery(
        ack_id, queue, group, copy.envelope, copy.seq, copy.attempt + 1, copy.failures, copy.crashes, copy.errors,
        copy.ready_ms, now_ms, until_ms,
    )  # fmt: skip


def ack_prefix(queue: QueueName, group: GroupName, partition: int = 0) -> str:
    """Return what the ack ids of a group begin with."""
    return f"{queue}#{partition}#{group}#"
