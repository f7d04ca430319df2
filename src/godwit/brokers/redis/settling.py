"""Settling and extending: ack ids to scripts, one call per queue and 200 leases."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack, Settlement
from godwit.brokers.redis import keys
from godwit.brokers.redis.encoding import ack_row, error_text, packed
from godwit.brokers.redis.held import Held, HeldLeases
from godwit.brokers.redis.link import Argument
from godwit.brokers.redis.reach import Reach
from godwit.core.clock import milliseconds
from godwit.core.failure import ProcessingError, remembered
from godwit.core.names import AckId

BATCH: Final = 200
_PARTS: Final = 4


class Aim(NamedTuple):
    """Where an ack id points: its place in the call, group and lease."""

    place: int
    group: str
    member: str


def aims(ack_ids: Sequence[AckId]) -> tuple[dict[str, list[Aim]], list[int]]:
    """Sort ack ids by queue, in the order of the call; return those that are none beside them."""
    by_queue: dict[str, list[Aim]] = {}
    wrong = []
    for index, ack_id in enumerate(ack_ids):
        parts = ack_id.split("#", 3)
        if len(parts) != _PARTS or parts[1] != "0" or not parts[0] or not parts[2]:
            wrong.append(index)
        else:
            by_queue.setdefault(parts[0], []).append(Aim(index, parts[2], parts[3]))
    return by_queue, wrong


class Settler:
    """Ends and extends leases."""

    def __init__(self, reach: Reach, held: HeldLeases) -> None:
        self._reach, self._held = reach, held

    async def settle(self, settlements: Sequence[Settlement]) -> list[AckId]:
        """End leases; return the ack ids refused, in the order of the call."""
        if not settlements:
            return []
        refused: list[int] = []
        fast = self._all_acked(settlements)
        if fast is not None:
            for start in range(0, len(fast), BATCH):
                refused += await self._ack(settlements, fast[start : start + BATCH], start)
        else:
            by_queue, refused = aims([settlement.ack_id for settlement in settlements])
            for queue, aimed in by_queue.items():
                for start in range(0, len(aimed), BATCH):
                    refused += await self._settle(queue, aimed[start : start + BATCH], settlements)
        for settlement in settlements:
            self._held.pop(settlement.ack_id, None)
        return [settlements[index].ack_id for index in sorted(refused)]

    def _all_acked(self, settlements: Sequence[Settlement]) -> list[Held] | None:
        """Return what is held, when all are acks of one place and worker that need nothing looked up."""
        found: list[Held] = []
        held = self._held
        first: Held | None = None
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

    async def _ack(self, settlements: Sequence[Settlement], held: list[Held], start: int) -> list[int]:
        members: list[str] = []
        lengths: list[int] = []
        rows: list[bytes] = []
        total = 0
        for one, ack in zip(held, islice(settlements, start, None), strict=False):
            assert isinstance(ack, Ack)  # noqa: S101 - `_all_acked` saw to it
            assert ack.run_ms is not None  # noqa: S101
            row = ack_row(one.copy, one.member, one.copy.attempt + 1, ack.run_ms, ack.result)
            size = one.copy.envelope.size
            members.append(one.member)
            rows.append(row)
            lengths += (len(row), size)
            total += size
        queue, _, group, _ = settlements[start].ack_id.split("#", 3)
        names = (*keys.step(queue), *keys.block(queue, group))
        refs = [member[1 : member.index(":")] for member in members]
        arguments: list[Argument] = [
            group, held[0].worker, len(held), total, b"".join(rows), packed(lengths), *members, *refs,
        ]  # fmt: skip
        answer = await self._reach.run("ack", queue, names, arguments)
        return [start + index - 1 for index in answer]

    async def _settle(self, queue: str, aimed: Sequence[Aim], settlements: Sequence[Settlement]) -> list[int]:
        groups = list(dict.fromkeys(aim.group for aim in aimed))
        numbers = {group: number for number, group in enumerate(groups, 1)}
        arguments: list[Argument] = [len(groups), len(aimed), *groups]
        for aim in aimed:
            arguments += (numbers[aim.group], aim.member, *_words(settlements[aim.place]))
        names = (*keys.step(queue), *(key for group in groups for key in keys.block(queue, group)))
        answer = await self._reach.run("settle", queue, names, arguments)
        return [aimed[index - 1].place for index in answer]

    async def extend(self, ack_ids: Sequence[AckId], lease_ms: int) -> list[AckId]:
        """Let leases end `lease_ms` from now; return the ack ids refused, in the order of the call."""
        by_queue, refused = aims(ack_ids)
        for queue, aimed in by_queue.items():
            for start in range(0, len(aimed), BATCH):
                part = aimed[start : start + BATCH]
                names, arguments = extension(queue, part, lease_ms)
                answer = await self._reach.run("extend", queue, names, arguments)
                refused += [part[index - 1].place for index in answer]
        return [ack_ids[index] for index in sorted(refused)]


def extension(queue: str, aimed: Sequence[Aim], lease_ms: int) -> tuple[tuple[str, ...], list[Argument]]:
    """Return keys and arguments of `extend.lua`."""
    groups = list(dict.fromkeys(aim.group for aim in aimed))
    numbers = {group: number for number, group in enumerate(groups, 1)}
    arguments: list[Argument] = [len(groups), len(aimed), lease_ms, *groups]
    for aim in aimed:
        arguments += (numbers[aim.group], aim.member)
    return (*keys.step(queue), *(key for group in groups for key in keys.block(queue, group))), arguments


def _words(settlement: Settlement) -> tuple[Argument, ...]:
    """Return verb, delay, kind, error, fingerprint, run_ms and result as `settle.lua` takes them."""
    match settlement:
        case Ack():
            result = packed(settlement.result) if settlement.result is not None else b""
            return ("ack", 0, "", "", "", _optional(settlement.run_ms), result)
        case HandBack():
            return ("hand_back", 0, "", "", "", "", "")
        case Nack():
            delay_ms = milliseconds(settlement.delay)
            return ("nack", delay_ms, "", *_error(settlement.error), _optional(settlement.run_ms), "")
        case GiveUp():
            return ("give_up", 0, settlement.kind, *_error(settlement.error), _optional(settlement.run_ms), "")


def _optional(number: int | None) -> Argument:
    return "" if number is None else number


def _error(error: ProcessingError | None) -> tuple[Argument, Argument]:
    if error is None:
        return "", ""
    return error_text(remembered((), error)[0]), error.fingerprint
