"""Settling and extending: ack ids to scripts, one call per queue, partition and 200 leases."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Postpone, Settlement
from godwit.brokers.redis.client.connection import Argument
from godwit.brokers.redis.client.errors import LinkLost
from godwit.brokers.redis.client.script_runner import ScriptRunner
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.codec import ack_end, ack_row, error_text, packed
from godwit.brokers.redis.lease_cache import CachedLease, LeaseCache
from godwit.brokers.redis.lost_reply import settle_again
from godwit.core.clock import milliseconds
from godwit.core.errors import BrokerUnavailable
from godwit.core.failures.failure import ProcessingError, remembered
from godwit.core.journal.vocabulary import Event
from godwit.core.names import AckId, is_name
from godwit.core.queues import MAX_PARTITIONS

BATCH: Final = 200
_PARTS: Final = 4
_PARTITIONS: Final = {str(number): number for number in range(MAX_PARTITIONS)}


ENDS: Final[dict[type[Settlement], frozenset[Event]]] = {
    Ack: frozenset({Event.ACKED}),
    Nack: frozenset({Event.NACKED, Event.DEAD_LETTERED}),
    Postpone: frozenset({Event.POSTPONED}),
    GiveUp: frozenset({Event.DEAD_LETTERED}),
    HandBack: frozenset({Event.HANDED_BACK}),
}
"""The events that tell that a settlement was carried out."""


class LeaseAim(NamedTuple):
    """Where an ack id points: its place in the call, group and lease."""

    place: int
    group: str
    member: str


Shard = tuple[str, int]
"""A queue and the number of one of its partitions."""


def aims(ack_ids: Sequence[AckId]) -> tuple[dict[Shard, list[LeaseAim]], list[int]]:
    """Sort ack ids by queue and partition, in the order of the call; return those that are none beside them."""
    by_shard: dict[Shard, list[LeaseAim]] = {}
    wrong = []
    for index, ack_id in enumerate(ack_ids):
        parts = ack_id.split("#", 3) if ack_id.isascii() else ()
        if len(parts) != _PARTS or parts[1] not in _PARTITIONS or not is_name(parts[0]) or not is_name(parts[2]):
            wrong.append(index)
        else:
            by_shard.setdefault((parts[0], _PARTITIONS[parts[1]]), []).append(LeaseAim(index, parts[2], parts[3]))
    return by_shard, wrong


def _by_shard(settlements: Sequence[Settlement]) -> list[list[int]]:
    """Return the places of settlements by the partition they are for."""
    shards: dict[str, list[int]] = {}
    for index, settlement in enumerate(settlements):
        queue, _, rest = settlement.ack_id.partition("#")
        shards.setdefault(f"{queue}#{rest.partition('#')[0]}", []).append(index)
    return list(shards.values())


class RedisSettler:
    """Ends and extends leases."""

    def __init__(self, reach: ScriptRunner, held: LeaseCache) -> None:
        self._reach, self._held = reach, held

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids refused, in the order of the call."""
        if not settlements:
            return []
        refused = await self._fast(settlements)
        if refused is None:
            shards = _by_shard(settlements)
            if len(shards) == 1:
                refused = await self._slow(settlements)
            else:
                refused = await self._each(settlements, shards)
        for settlement in settlements:
            self._held.pop(settlement.ack_id, None)
        return [settlements[index].ack_id for index in sorted(refused)]

    async def _fast(self, settlements: Sequence[Settlement]) -> list[int] | None:
        """Settle what needs nothing looked up; None when it is not so simple."""
        fast = self._all_acked(settlements)
        if fast is None:
            return None
        refused: list[int] = []
        for start in range(0, len(fast), BATCH):
            refused += await self._ack(settlements, fast[start : start + BATCH], start)
        return refused

    async def _slow(self, settlements: Sequence[Settlement]) -> list[int]:
        by_shard, refused = aims([settlement.ack_id for settlement in settlements])
        for shard, aimed in by_shard.items():
            for start in range(0, len(aimed), BATCH):
                refused += await self._settle(shard, aimed[start : start + BATCH], settlements)
        return refused

    async def _each(self, settlements: Sequence[Settlement], shards: list[list[int]]) -> list[int]:
        """Settle what several partitions have, each for itself and all at once."""

        async def one(indexes: list[int]) -> list[int]:
            part = [settlements[index] for index in indexes]
            refused = await self._fast(part)
            return [indexes[at] for at in (await self._slow(part) if refused is None else refused)]

        found = await asyncio.gather(*map(one, shards), return_exceptions=True)
        for result in found:
            if isinstance(result, BaseException):
                raise result
        return [index for result in found for index in result]  # type: ignore[union-attr]

    def _all_acked(self, settlements: Sequence[Settlement]) -> list[CachedLease] | None:
        """Return what is held, when all are acks of one place and worker that need nothing looked up."""
        found: list[CachedLease] = []
        held = self._held
        first: CachedLease | None = None
        prefix = ""
        for settlement in settlements:
            if type(settlement) is not Ack or settlement.run_ms is None:
                return None
            one = held.get(settlement.ack_id)
            if one is None or one.ordered:
                return None
            if first is None:
                first, prefix = one, settlement.ack_id.removesuffix(one.member)
            elif one.worker != first.worker or not settlement.ack_id.startswith(prefix):
                return None
            found.append(one)
        return found if len({one.member for one in found}) == len(found) else None

    async def _ack(self, settlements: Sequence[Settlement], held: list[CachedLease], start: int) -> list[int]:
        members: list[str] = []
        lengths: list[int] = []
        rows: list[bytes] = []
        total = 0
        for one, ack in zip(held, islice(settlements, start, None), strict=False):
            assert isinstance(ack, Ack)  # noqa: S101 - `_all_acked` saw to it
            assert ack.run_ms is not None  # noqa: S101
            row = ack_row(one.copy, one.member, one.copy.attempt + 1, ack.run_ms, ack)
            size = one.copy.envelope.size
            members.append(one.member)
            rows.append(row)
            lengths += (len(row), size)
            total += size
        queue, number, group, _ = settlements[start].ack_id.split("#", 3)
        partition = _PARTITIONS[number]
        names = (*keys.step(queue, partition), *keys.block(queue, group, partition))
        refs = [member[1 : member.index(":")] for member in members]
        arguments: list[Argument] = [
            group, held[0].worker, len(held), total, b"".join(rows), packed(lengths), *members, *refs,
        ]  # fmt: skip
        wanted = [(member, ENDS[Ack]) for member in members]
        answer = await self._run("ack", (queue, partition), names, arguments, wanted)
        return [start + index - 1 for index in answer]

    async def _settle(self, shard: Shard, aimed: Sequence[LeaseAim], settlements: Sequence[Settlement]) -> list[int]:
        queue, partition = shard
        groups = list(dict.fromkeys(aim.group for aim in aimed))
        numbers = {group: number for number, group in enumerate(groups, 1)}
        arguments: list[Argument] = [len(groups), len(aimed), *groups]
        for aim in aimed:
            arguments += (numbers[aim.group], aim.member, *_words(settlements[aim.place]))
        blocks = (key for group in groups for key in keys.block(queue, group, partition))
        names = (*keys.step(queue, partition), *blocks)
        wanted = [(aim.member, ENDS[type(settlements[aim.place])]) for aim in aimed]
        answer = await self._run("settle", shard, names, arguments, wanted)
        return [aimed[index - 1].place for index in answer]

    async def _run(
        self,
        name: str,
        shard: Shard,
        names: Sequence[str],
        arguments: Sequence[Argument],
        wanted: Sequence[tuple[str, frozenset[Event]]],
    ) -> list[int]:
        """Run a script that settles; a reply that was lost says nothing of what it did."""
        try:
            answer: list[int] = await self._reach.run(name, shard[0], names, arguments, again=False)
        except BrokerUnavailable as error:
            if not isinstance(error.__cause__, LinkLost):
                raise
            return await settle_again(self._reach, name, shard, names, arguments, wanted)
        return answer

    async def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused, in the order of the call."""
        by_shard, refused = aims(ack_ids)
        for shard, aimed in by_shard.items():
            for start in range(0, len(aimed), BATCH):
                part = aimed[start : start + BATCH]
                names, arguments = extension(shard, part, lease_ms)
                answer = await self._reach.run("extend", shard[0], names, arguments)
                refused += [part[index - 1].place for index in answer]
        return [ack_ids[index] for index in sorted(refused)]


def extension(shard: Shard, aimed: Sequence[LeaseAim], lease_ms: int) -> tuple[tuple[str, ...], list[Argument]]:
    """Return keys and arguments of `extend.lua`."""
    groups = list(dict.fromkeys(aim.group for aim in aimed))
    numbers = {group: number for number, group in enumerate(groups, 1)}
    arguments: list[Argument] = [len(groups), len(aimed), lease_ms, *groups]
    for aim in aimed:
        arguments += (numbers[aim.group], aim.member)
    return (*keys.step(*shard), *(key for group in groups for key in keys.block(shard[0], group, shard[1]))), arguments


def _words(settlement: Settlement) -> tuple[Argument, ...]:
    """Return verb, delay, kind, error, fingerprint, run_ms and end as `settle.lua` takes them."""
    match settlement:
        case Ack():
            return ("ack", 0, "", "", "", _optional(settlement.run_ms), ack_end(settlement))
        case HandBack():
            return ("hand_back", 0, "", "", "", "", "")
        case Nack() | Postpone():
            verb, delay_ms = "nack" if isinstance(settlement, Nack) else "postpone", milliseconds(settlement.delay)
            return (verb, delay_ms, "", *_error(settlement.error), _optional(settlement.run_ms), "")
        case GiveUp():
            return ("give_up", 0, settlement.kind, *_error(settlement.error), _optional(settlement.run_ms), "")


def _optional(number: int | None) -> Argument:
    return "" if number is None else number


def _error(error: ProcessingError | None) -> tuple[Argument, Argument]:
    if error is None:
        return "", ""
    return error_text(remembered((), error)[0]), error.fingerprint
