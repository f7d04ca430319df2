"""Dead letters on the server: paging, replay, discard, and feeding declared dead letter queues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from godwit.brokers.arguments import check_actor, check_limit, number_of
from godwit.brokers.contract import PUBLISH_CHUNK, DeadLetter, LetterId
from godwit.brokers.redis.client.script_runner import ScriptRunner, call_name
from godwit.brokers.redis.layout import keys
from godwit.brokers.redis.layout.catalog import Catalog
from godwit.brokers.redis.layout.codec import read_headed
from godwit.brokers.redis.layout.partitions import partition_of, routing_key
from godwit.brokers.redis.layout.queue_config import QueueConfig
from godwit.brokers.redis.publish.publisher import RedisPublisher, full_server, over_limit
from godwit.brokers.redis.pull import ack_prefix
from godwit.core.errors import PartialPublish, QueueFull, QueueNotFound, StorageFull
from godwit.core.failures.failure import FailureKind
from godwit.core.names import GroupName, QueueName

_PARTS = 4
_DIGITS = 12
_LETTERS = keys.GROUP_PARTS.index("letters")


class LetterAim(NamedTuple):
    """Where a letter's id points: its place in the call, group and number."""

    place: int
    group: GroupName
    number: int


class RedisDeadLetters:
    """The dead letters of all queues of a server."""

    def __init__(self, reach: ScriptRunner, catalog: Catalog, publisher: RedisPublisher) -> None:
        self._reach, self._catalog, self._publisher = reach, catalog, publisher

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        """List those of a queue, or of all queues that share the dead letter queue `name`."""
        limit = check_limit(limit)
        queues = await self._catalog.all()
        found = [queue for queue in queues if name in (queue.name, queue.spec.dead_letter_queue)]
        if not found:
            raise QueueNotFound(name, tuple(queue.name for queue in queues))
        places = sorted(
            (ack_prefix(queue.name, one, partition), queue.name, one, partition)
            for queue in found
            for one in queue.groups
            for partition in queue.partitions
            if group in (None, one)
        )
        letters: list[DeadLetter] = []
        for prefix, queue_name, one, partition in places:
            if after is not None and f"{prefix}\x7f" < after:
                continue
            start = number_of(after.removeprefix(prefix)) if after is not None and after.startswith(prefix) else 0
            letters += await self._of(queue_name, one, partition, start or 0, limit - len(letters))
            if len(letters) >= limit:
                break
        return letters

    async def _of(self, queue: QueueName, group: GroupName, partition: int, after: int, limit: int) -> list[DeadLetter]:
        stream = keys.block(queue, group, partition)[_LETTERS]
        (entries,) = await self._reach.ask(("XRANGE", stream, f"({after}-0", "+", "COUNT", limit))
        prefix = ack_prefix(queue, group, partition)
        return [_letter(queue, group, prefix, entry) for entry in entries]

    async def replay(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Make them ready again; limits are looked at for all of them first."""
        check_actor(actor)
        by_queue, missing = await self._aimed(letters)
        for step in ("check", "do") if len(by_queue) > 1 else ("do",):
            gone = []
            for queue, aimed in by_queue:
                staying, moving = await self._displaced(queue, aimed)
                gone += await self._replay(queue, staying, step, actor) if staying else []
                if step == "do" and moving:
                    await self._move(queue, moving, queue.name, actor)
        missing += gone if by_queue else []
        return [letters[index] for index in sorted(missing)]

    async def _displaced(
        self, queue: QueueConfig, aimed: Sequence[LetterAim]
    ) -> tuple[Sequence[LetterAim], list[tuple[LetterAim, DeadLetter]]]:
        """Tell the letters that can wait again where they are from those whose key is in another partition by now."""
        if queue.spec.partitions == 1 or not queue.ordered:
            return aimed, []
        blocks = {aim.group: keys.block(queue.name, aim.group, queue.partition) for aim in aimed}
        asked = [("XRANGE", blocks[aim.group][_LETTERS], f"{aim.number}-0", f"{aim.number}-0") for aim in aimed]
        staying: list[LetterAim] = []
        moving: list[tuple[LetterAim, DeadLetter]] = []
        for aim, entries in zip(aimed, await self._reach.ask(*asked), strict=True):
            prefix = ack_prefix(queue.name, aim.group, queue.partition)
            letter = _letter(queue.name, aim.group, prefix, entries[0]) if entries else None
            home = partition_of(routing_key(letter.envelope), queue.spec.partitions) if letter else queue.partition
            if letter is None or letter.envelope.ordering_key is None or home == queue.partition:
                staying.append(aim)
            else:
                moving.append((aim, letter))
        return staying, moving

    async def _move(
        self,
        source: QueueConfig,
        letters: Sequence[tuple[LetterAim, DeadLetter]],
        target: QueueName,
        actor: str | None = None,
    ) -> int:
        """Publish letters where they belong, then remove them here; return how many were there."""
        own = target == source.name
        envelopes = [
            msgspec.structs.replace(
                letter.envelope,
                queue=target,
                group=letter.group if own else None,
                deliver_at_ms=None,
                expires_at_ms=None,
            )
            for _, letter in letters
        ]
        # Each letter is a ticket: should this process end before the next step, it is not moved twice.
        await self._publisher.accept(envelopes, mode="moved", tickets=[letter.id for _, letter in letters])
        return len(letters) - len(await self._discard(source, [aim for aim, _ in letters], target, actor))

    async def _replay(self, queue: QueueConfig, aimed: Sequence[LetterAim], step: str, actor: str | None) -> list[int]:
        groups, names, words = _addressed(queue, aimed)
        spec = queue.spec
        arguments = (
            step, len(groups), *queue.limits[:2], spec.lanes, int(queue.keeps_body), len(aimed),
            actor or "", *groups, *words, call_name(),
        )  # fmt: skip
        try:
            answer = await self._reach.run("replay", queue.name, names, arguments)
        except StorageFull as error:
            raise full_server(queue) from error
        if answer[0] == b"full":
            raise over_limit(queue, answer)
        return [aimed[index - 1].place for index in answer[1:]]

    async def discard(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        """Delete them."""
        check_actor(actor)
        by_queue, missing = await self._aimed(letters)
        for queue, aimed in by_queue:
            missing += await self._discard(queue, aimed, actor=actor)
        return [letters[index] for index in sorted(missing)]

    async def _discard(
        self, queue: QueueConfig, aimed: Sequence[LetterAim], target: str = "", actor: str | None = None
    ) -> list[int]:
        groups, names, words = _addressed(queue, aimed)
        arguments = (target, len(groups), len(aimed), actor or "", *groups, *words, call_name())
        answer = await self._reach.run("discard", queue.name, names, arguments)
        return [aimed[index - 1].place for index in answer]

    async def _aimed(self, letters: Sequence[LetterId]) -> tuple[list[tuple[QueueConfig, list[LetterAim]]], list[int]]:
        """Sort letters by queue and partition; return those that cannot exist, or come twice, beside them."""
        by_shard: dict[tuple[QueueName, int], list[LetterAim]] = {}
        missing: list[int] = []
        known = {queue.name: queue for queue in await self._catalog.all()} if letters else {}
        seen: set[str] = set()
        for index, letter in enumerate(letters):
            parts = letter.split("#")
            queue = known.get(parts[0])
            there = (
                len(parts) == _PARTS
                and queue is not None
                and parts[1] in map(str, queue.partitions)
                and parts[2] in queue.groups
                and number_of(parts[3]) is not None
            )
            if not there or letter in seen:
                missing.append(index)
                continue
            seen.add(letter)
            by_shard.setdefault((parts[0], int(parts[1])), []).append(LetterAim(index, parts[2], int(parts[3])))
        return [(known[name].at(partition), aimed) for (name, partition), aimed in by_shard.items()], missing

    async def feed(self, source: QueueConfig, target: QueueConfig, *, most: int) -> int:
        """Move the dead letters of a queue into its declared dead letter queue, in order, as far as there is room.

        After `most` of one group and partition the rest is left for the next call.
        """
        moved = 0
        for group in source.groups:
            for partition in source.partitions:
                moved += await self._feed(source.at(partition), group, target, most)
        return moved

    async def _feed(self, source: QueueConfig, group: GroupName, target: QueueConfig, most: int) -> int:
        moved, size = 0, PUBLISH_CHUNK
        while size and moved < most and (letters := await self._of(source.name, group, source.partition, 0, size)):
            aimed = [(LetterAim(index, group, _number(letter.id)), letter) for index, letter in enumerate(letters)]
            try:
                moved += await self._move(source, aimed, target.name)
            except (QueueFull, PartialPublish):
                size = len(letters) // 2
        return moved


def _number(letter: LetterId) -> int:
    return int(letter.rpartition("#")[2])


def _addressed(queue: QueueConfig, aimed: Sequence[LetterAim]) -> tuple[list[GroupName], tuple[str, ...], list[Any]]:
    """Return groups, keys and, per letter, the numbers of its group and of itself."""
    groups = list(dict.fromkeys(aim.group for aim in aimed))
    numbers = {group: number for number, group in enumerate(groups, 1)}
    words = [word for aim in aimed for word in (numbers[aim.group], aim.number)]
    blocks = (key for one in groups for key in keys.block(queue.name, one, queue.partition))
    return groups, (*keys.step(queue.name, queue.partition), *blocks), words


def _letter(queue: QueueName, group: GroupName, prefix: str, entry: Any) -> DeadLetter:
    number = int(entry[0].partition(b"-")[0])
    _, kind, _, dead_at, _, value = entry[1]
    copy = read_headed(queue, value)
    return DeadLetter(
        id=LetterId(f"{prefix}{number:0{_DIGITS}d}"),
        queue=queue,
        group=group,
        envelope=copy.envelope,
        publish_seq=copy.seq,
        kind=FailureKind(kind.decode()),
        dead_at_ms=int(dead_at),
        attempt=copy.attempt,
        failures=copy.failures,
        crashes=copy.crashes,
        errors=copy.errors,
    )
