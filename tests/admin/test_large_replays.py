"""Replaying very many dead letters: in bounded memory, interrupted, killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from godwit.admin.dead_letters import DeadLetterQueueHandler, Progress
from godwit.admin.letter_filter import LetterFilter
from godwit.brokers.contract import Ack, Broker, DeadLetter, GroupStats, LetterId, QueueStats
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.urls import connect
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import Envelope, seal, seal_all
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec
from tests.admin.builders import LEASE, Q, bury, error, messages
from tests.project.specification import ROOT

MANY = 100_000
KILLED = 5_000


def envelopes(count: int) -> list[Envelope]:
    (sealed,) = seal_all(messages("m"))
    return [
        Envelope(MessageId(f"m{n}"), Q, sealed.body, sealed.size, sealed.created_at_ms, "order") for n in range(count)
    ]


async def delivered(broker: Broker) -> Counter[str]:
    """Take and settle everything that waits; count deliveries by the id of the message that first died."""
    counts: Counter[str] = Counter()
    while deliveries := await broker.pull(Q, DEFAULT_GROUP, worker="w", limit=5_000, lease=LEASE):
        counts.update(one.envelope.replay_of or one.message_id for one in deliveries)
        await broker.settle([Ack(one.ack_id) for one in deliveries])
    return counts


async def test_a_hundred_thousand_are_replayed_once_each_although_it_was_interrupted(memory: MemoryBroker) -> None:
    await bury(memory, envelopes(MANY), error=error())
    handler = DeadLetterQueueHandler(memory)

    def interrupt(state: Progress) -> None:
        if state.done >= MANY // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await handler.replay_all(LetterFilter(name=Q), progress=interrupt)
    (queue,) = await memory.stats()
    left = queue.groups[0].dead
    assert MANY // 2 - 200 < left <= MANY // 2
    outcome = await handler.replay_all(LetterFilter(name=Q))
    assert outcome.done == outcome.total == left
    counts = await delivered(memory)
    assert len(counts) == MANY
    assert set(counts.values()) == {1}
    assert await handler.count() == 0


async def test_a_cancelled_replay_stops_between_two_steps(memory: MemoryBroker) -> None:
    await bury(memory, envelopes(1_000), error=error())
    handler = DeadLetterQueueHandler(memory)

    def cancel(_: Progress) -> None:
        task.cancel()

    task = asyncio.create_task(handler.replay_all(LetterFilter(name=Q), rate=10, progress=cancel))
    with pytest.raises(asyncio.CancelledError):
        await task
    (queue,) = await memory.stats()
    assert queue.groups[0].dead == 999
    assert (await handler.replay_all(LetterFilter(name=Q))).done == 999
    assert len(await delivered(memory)) == 1_000


class EndlessLetters:
    """A stand-in for a broker whose letters exist only while they are read."""

    def __init__(self, count: int, body: bytes) -> None:
        self.count, self.body, self.replayed = count, body, 0
        self.largest_page = 0
        self.dead_letters = self

    async def page(
        self, name: QueueName, *, group: GroupName | None = None, after: LetterId | None = None, limit: int = 100
    ) -> list[DeadLetter]:
        first = int(after.rpartition("#")[2]) + 1 if after else 1
        self.largest_page = max(self.largest_page, limit)
        return [self._letter(n) for n in range(first, min(first + limit, self.count + 1))]

    def _letter(self, number: int) -> DeadLetter:
        body = self.body + b"%d" % number  # a copy of its own, as a broker's would be
        return DeadLetter(
            id=LetterId(f"{Q}#0#default#{number:012d}"),
            queue=Q,
            group=DEFAULT_GROUP,
            envelope=Envelope(MessageId(f"m{number}"), Q, body, len(body), 0),
            publish_seq=number,
            kind=FailureKind.TRANSIENT,
            dead_at_ms=number,
            attempt=3,
            failures=3,
            crashes=0,
            errors=(error(f"no route to host {number}"),),
        )

    async def replay(self, letters: Sequence[LetterId], *, actor: str | None = None) -> list[LetterId]:
        del actor
        self.replayed += len(letters)
        return []

    async def stats(self) -> list[QueueStats]:
        counts = {"ready": 0, "blocked": 0, "delayed": 0, "leased": 0, "bytes": 0, "leased_bytes": 0, "dropped": 0}
        group = GroupStats(name=DEFAULT_GROUP, dead=self.count, full=False, **counts)
        return [QueueStats(name=Q, published=0, duplicates=0, groups=(group,))]


@pytest.mark.parametrize(
    ("count", "size", "peak_mb"), [(MANY, 100, 4), (500, 1 << 20, 80)], ids=["many small ones", "large ones"]
)
async def test_memory_depends_on_neither_the_number_nor_the_size_of_letters(
    count: int, size: int, peak_mb: int
) -> None:
    letters = EndlessLetters(count, b"x" * size)
    handler = DeadLetterQueueHandler(cast("Broker", letters))
    tracemalloc.start()
    try:
        outcome = await handler.replay_all(LetterFilter(name=Q))
        # Counting patterns reads in the same way; a few suffice, for tracing makes it slow.
        letters.count = min(count, 5_000)
        (pattern,) = await handler.patterns(LetterFilter(name=Q))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert outcome.done == letters.replayed == count
    assert pattern.count == letters.count
    assert letters.largest_page <= 200
    assert peak < peak_mb << 20


@pytest.mark.parametrize(
    ("fault", "patch"),
    [
        ("dead_letters.replayed:12", None),
        ("dead_letters.published:12", '{"priority": 90}'),
        ("dead_letters.replayed:12", '{"priority": 90}'),
    ],
)
async def test_a_replay_killed_in_the_middle_is_continued_without_loss_or_repetition(
    tmp_path: Path, fault: str, patch: str | None
) -> None:
    url = f"sqlite:///{tmp_path / 'godwit.db'}"
    made = [seal(Message(id=MessageId(f"m{n}"), queue=Q, payload=n)) for n in range(KILLED)]
    async with connect(url) as broker:
        await broker.declare(QueueSpec(name=Q))
        await bury(broker, made, error=error())
    words = [sys.executable, "-m", "tests.admin.replayer", url, *([patch] if patch else [])]
    env = {**os.environ, "GODWIT_FAULT": fault}
    killed = await asyncio.to_thread(subprocess.run, words, cwd=ROOT, env=env, check=False, timeout=200)
    assert killed.returncode == -signal.SIGKILL
    async with connect(url) as broker:
        left = (await broker.stats())[0].groups[0].dead
        assert 0 < left < KILLED
        change = {"priority": 90} if patch else None
        outcome = await DeadLetterQueueHandler(broker).replay_all(LetterFilter(name=Q), change=change)
        assert outcome.done == left
        counts = await delivered(broker)
    assert len(counts) == KILLED
    assert set(counts.values()) == {1}
