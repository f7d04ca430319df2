"""Dead letters in memory: paging, replay, discard, and feeding declared dead letter queues."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import msgspec

from godwit.brokers.contract import PUBLISH_CHUNK, DeadLetter, LetterId
from godwit.brokers.memory.group import MemoryCopy, MemoryGroup
from godwit.brokers.memory.queue import MemoryQueue
from godwit.core.errors import QueueFull
from godwit.core.journal.rows import discarded_row, replayed_row
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import LANE_OF_PRIORITY


def letter_id(copy: MemoryCopy) -> LetterId:
    """Return the id of a dead letter: it sorts by time of death inside its group."""
    return LetterId(f"{copy.group.ack_prefix}{copy.letter:012d}")


def sources(queues: Iterable[MemoryQueue], name: QueueName) -> list[MemoryQueue]:
    """Return the queue of this name and those that share it as their dead letter queue."""
    return [queue for queue in queues if name in (queue.spec.name, queue.spec.dead_letter_queue)]


def page(found: Iterable[MemoryQueue], group: GroupName | None, after: LetterId | None, limit: int) -> list[DeadLetter]:
    """Return letters beyond `after`, by queue, group and time of death."""
    letters: list[DeadLetter] = []
    groups = sorted(
        (one for queue in found for one in queue.groups.values() if group in (None, one.name)),
        key=lambda one: one.ack_prefix,
    )
    for one in groups:
        if after is not None and f"{one.ack_prefix}\x7f" < after:
            continue
        beyond = (copy for copy in one.letters.values() if after is None or letter_id(copy) > after)
        letters.extend(map(_dead_letter, islice(beyond, limit - len(letters))))
        if len(letters) >= limit:
            break
    return letters


def _dead_letter(copy: MemoryCopy) -> DeadLetter:
    return DeadLetter(
        id=letter_id(copy),
        queue=copy.group.queue,
        group=copy.group.name,
        envelope=copy.envelope,
        publish_seq=copy.seq,
        kind=copy.kind,
        dead_at_ms=copy.dead_ms,
        attempt=copy.attempt,
        failures=copy.failures,
        crashes=copy.crashes,
        errors=copy.errors,
    )


def check_room(queue: MemoryQueue, group: MemoryGroup, letters: Sequence[MemoryCopy]) -> None:
    """Refuse a replay that would not fit."""
    spec = queue.spec
    if spec.max_size is not None and group.depth + len(letters) > spec.max_size:
        raise QueueFull(spec.name, group.name, "max_size", spec.max_size)
    if spec.max_bytes is not None and group.bytes + sum(copy.envelope.size for copy in letters) > spec.max_bytes:
        raise QueueFull(spec.name, group.name, "max_bytes", spec.max_bytes)


def replay(
    queue: MemoryQueue, group: MemoryGroup, letters: Iterable[MemoryCopy], now_ms: int, actor: str | None
) -> None:
    """Let letters of one group wait again as new copies."""
    rows = []
    for letter in letters:
        envelope = letter.envelope
        del group.letters[letter.letter]
        queue.shard.publish_seq += 1
        lane = LANE_OF_PRIORITY[envelope.priority] if len(group.lanes) > 1 else 0
        copy = MemoryCopy(group, envelope, queue.shard.publish_seq, lane, now_ms, 0)
        copy.errors = letter.errors
        group.admit(copy, now_ms)
        rows.append(
            replayed_row(
                envelope.id, copy.seq, envelope.type, envelope.priority, copy.lane, envelope.ordering_key, now_ms,
                envelope.deliver_at_ms, envelope.size, envelope.schedule_id, envelope.campaign, queue.body(envelope),
                letter.seq, envelope.correlation_id, envelope.journal_attributes,
            )
        )  # fmt: skip
    queue.shard.append(Event.REPLAYED, queue.spec.name, group.name, None, group.depth, rows, actor=actor)


def discard(
    queue: MemoryQueue,
    group: MemoryGroup,
    letters: Iterable[MemoryCopy],
    *,
    target: str | None = None,
    actor: str | None = None,
) -> int:
    """Delete letters of one group; `target` names the queue they went to."""
    rows = []
    for letter in letters:
        del group.letters[letter.letter]
        rows.append(discarded_row(letter.envelope.id, letter.seq, target))
    if rows:
        queue.shard.append(Event.DISCARDED, queue.spec.name, group.name, None, group.depth, rows, actor=actor)
    return len(rows)


def feed(source: MemoryQueue, target: MemoryQueue, now_ms: int) -> Iterator[int]:
    """Move the dead letters of a queue into its declared dead letter queue, in order, as far as there is room.

    Gives the number of each chunk.
    """
    for group in list(source.groups.values()):
        size = PUBLISH_CHUNK
        while group.letters and size and group.is_in(source.groups):
            letters = list(islice(group.letters.values(), size))
            envelopes = [
                msgspec.structs.replace(
                    letter.envelope, queue=target.spec.name, group=None, deliver_at_ms=None, expires_at_ms=None
                )
                for letter in letters
            ]
            try:
                target.accept(envelopes, now_ms, moved=True)
            except QueueFull:
                size = len(letters) // 2
                continue
            yield discard(source, group, letters, target=target.spec.name)
