"""DeadLetterQueueHandler: list, inspect, replay, edit and discard messages that were given up on.

Everything works in pages of at most 200 letters. A replay is atomic per page, so it can be interrupted anywhere and
continued by doing it again: what was replayed is no longer a dead letter.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import timedelta
from itertools import groupby
from typing import Final

import msgspec

from godwit.admin.edits import Change, edited, opened
from godwit.admin.letter_filter import EVERY_LETTER, Cause, LetterFilter, cause_of
from godwit.admin.letter_pages import LARGEST_PAGE, Pages, find, pages, pages_of_all
from godwit.admin.patterns import GROWING_ABOVE, FailurePattern, PatternWatch, counted
from godwit.admin.token_bucket import Sleep, TokenBucket
from godwit.brokers.contract import Broker, DeadLetter, LetterId, Place
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms, milliseconds
from godwit.core.errors import LetterNotFound, QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.fault_points import fault_point
from godwit.core.messages.envelope import seal
from godwit.core.messages.marks import marked_like
from godwit.core.messages.message import Message
from godwit.core.names import MessageId, QueueName
from godwit.telemetry.sinks import Sink
from godwit.telemetry.window import MONOTONIC_CLOCK

PATIENCE: Final = timedelta(minutes=5)
FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 2.0


class Inspection(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one dead letter: `message`, or `raw` when its body is not a message of ours."""

    letter: DeadLetter
    cause: Cause
    message: Message | None
    raw: bytes | None


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a replay or a discard is: letters done, those another process took, those read so far.

    `total` is how many there were to read, None when that is not known (queues that share a dead letter queue).
    """

    done: int = 0
    missing: int = 0
    read: int = 0
    total: int | None = None

    def after(self, tried: int, missing: int) -> Progress:
        """Return the state after some more letters."""
        return msgspec.structs.replace(self, done=self.done + tried - missing, missing=self.missing + missing)


Report = Callable[[Progress], None]
Step = Callable[[Sequence[DeadLetter]], Awaitable[int]]
"""Does something to letters, as a whole or not at all; returns how many of them did not exist any more."""


class DeadLetterQueueHandler:
    """The dead letters of all queues of a broker.

    `actor` is who replays, edits and discards, as the journal names it. `check` is asked about every edited message
    before it is published (the schemas of the manager). `timer` and `sleep` set the pace of limited replays; `clock`
    tells how old letters are.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        check: Callable[[Message], None] | None = None,
        actor: str | None = None,
        clock: Clock = SYSTEM_CLOCK,
        timer: Clock = MONOTONIC_CLOCK,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        self._broker, self._check, self._actor = broker, check, actor
        self._clock, self._timer, self._sleep = clock, timer, sleep

    # Looking

    async def letters(
        self, which: LetterFilter = EVERY_LETTER, *, after: LetterId | None = None
    ) -> AsyncIterator[DeadLetter]:
        """Give the letters meant, by queue, group and time of death; `after` goes on behind a letter seen before.

        Going on needs a `name` in the filter.
        """
        now_ms = self._clock.now_ms()
        async with aclosing(self._pages(which, after)) as found:
            async for page in found:
                for letter in page:
                    if which.matches(letter, now_ms):
                        yield letter

    async def inspect(self, letter_id: LetterId) -> Inspection:
        """Return one letter with its cause, its history and what is inside."""
        return inspection(await find(self._broker.dead_letters, letter_id))

    async def count(self, which: LetterFilter = EVERY_LETTER) -> int:
        """Return how many letters are meant."""
        total = 0
        async for _ in self.letters(which):
            total += 1
        return total

    def poison(self, name: QueueName | None = None) -> AsyncIterator[DeadLetter]:
        """Give the messages that were isolated because they took down their workers."""
        return self.letters(LetterFilter(name=name, kind=FailureKind.POISON))

    async def patterns(self, which: LetterFilter = EVERY_LETTER) -> list[FailurePattern]:
        """Count the letters meant by what they died of, the most frequent first."""
        return await counted(self.letters(which))

    def watch(self, *sinks: Sink, threshold: int = GROWING_ABOVE) -> PatternWatch:
        """Return a watch that tells the sinks when a failure pattern grows; run it, or call its `tick`."""
        return PatternWatch(self._broker, sinks, threshold=threshold, clock=self._clock, timer=self._timer)

    # Acting

    async def replay(self, letter_id: LetterId) -> None:
        """Let one message wait again: counters at zero, history kept; raises `LetterNotFound`."""
        if await self._broker.dead_letters.replay([letter_id], actor=self._actor):
            raise LetterNotFound(letter_id)

    async def edit_and_replay(self, letter_id: LetterId, change: Change) -> MessageId:
        """Publish a changed message instead of a letter, and return its id; `replay_of` names the original."""
        letter = await find(self._broker.dead_letters, letter_id)
        message = self._edited(letter, change)
        await self._publish_then_discard([(letter, message)])
        return message.id

    async def replay_all(
        self,
        which: LetterFilter = EVERY_LETTER,
        *,
        change: Change | None = None,
        rate: float | None = None,
        progress: Report | None = None,
        patience: timedelta = PATIENCE,
    ) -> Progress:
        """Replay the letters meant that are dead now, at most `rate` a second, changed if a change is given.

        A full queue is waited for; `QueueFull` is raised when it took nothing for as long as `patience`. Messages that
        die again meanwhile are left alone. Interrupted, it is continued by calling it again.
        """

        async def step(letters: Sequence[DeadLetter]) -> int:
            if change is None:
                ids = [letter.id for letter in letters]
                missing = len(await self._broker.dead_letters.replay(ids, actor=self._actor))
            else:
                missing = await self._publish_then_discard([(one, self._edited(one, change)) for one in letters])
            fault_point("dead_letters.replayed")
            return missing

        return await self._each(which, step, rate=rate, progress=progress, patience=patience)

    async def discard(self, letter_id: LetterId) -> None:
        """Delete one letter; raises `LetterNotFound`."""
        if await self._broker.dead_letters.discard([letter_id], actor=self._actor):
            raise LetterNotFound(letter_id)

    async def discard_all(self, which: LetterFilter = EVERY_LETTER, *, progress: Report | None = None) -> Progress:
        """Delete the letters meant that are dead now."""

        async def step(letters: Sequence[DeadLetter]) -> int:
            ids = [letter.id for letter in letters]
            return len(await self._broker.dead_letters.discard(ids, actor=self._actor))

        return await self._each(which, step, rate=None, progress=progress, patience=PATIENCE)

    # Inside

    def _pages(self, which: LetterFilter, after: LetterId | None = None) -> Pages:
        if which.name is None:
            return pages_of_all(self._broker, which.group)
        return pages(self._broker.dead_letters, which.name, which.group, after)

    async def _each(
        self, which: LetterFilter, step: Step, *, rate: float | None, progress: Report | None, patience: timedelta
    ) -> Progress:
        """Do a step to all letters meant, a page at a time."""
        bucket = TokenBucket(rate, clock=self._timer, sleep=self._sleep) if rate is not None else None
        dead = await self._dead_now()
        state = Progress(total=_total(dead, which))
        now_ms = self._clock.now_ms()
        async with aclosing(self._pages(which)) as found:
            async for page in found:
                meant = [one for one in page if _takes(dead, (one.queue, one.group)) and which.matches(one, now_ms)]
                state = msgspec.structs.replace(state, read=state.read + len(page))
                for _, some in groupby(meant, key=lambda letter: (letter.queue, letter.group)):
                    async for done, missing in self._paced(list(some), step, bucket, patience):
                        state = state.after(done, missing)
                        if progress is not None:
                            progress(state)
                if progress is not None and not meant:
                    progress(state)
        return state

    async def _paced(
        self, letters: Sequence[DeadLetter], step: Step, bucket: TokenBucket | None, patience: timedelta
    ) -> AsyncIterator[tuple[int, int]]:
        """Do the step to some letters at a time, as many as pace and room allow; give counts of done and missing."""
        size, at, pause = len(letters), 0, FIRST_PAUSE
        full_since_ms: int | None = None
        granted = 0
        while at < len(letters):
            if not granted:
                wanted = min(size, len(letters) - at)
                granted = await bucket.take(wanted) if bucket is not None else wanted
            some = letters[at : at + min(size, granted)]
            try:
                missing = await step(some)
            except QueueFull:
                if len(some) > 1:
                    size = (len(some) + 1) // 2  # a few may fit where many do not
                    continue
                now_ms = self._timer.now_ms()
                full_since_ms = now_ms if full_since_ms is None else full_since_ms
                if now_ms - full_since_ms >= milliseconds(patience):
                    raise
                await self._sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            yield len(some), missing
            at, granted, size = at + len(some), granted - len(some), min(LARGEST_PAGE, size * 2)
            full_since_ms, pause = None, FIRST_PAUSE

    def _edited(self, letter: DeadLetter, change: Change) -> Message:
        message = edited(letter, change, from_ms(self._clock.now_ms()))
        if self._check is not None:
            self._check(message)
        return message

    async def _publish_then_discard(self, pairs: Sequence[tuple[DeadLetter, Message]]) -> int:
        """Publish the new messages, then remove the letters; return how many letters were gone before.

        A crash in between leaves letters whose messages are published already: the next attempt makes the same ids,
        which the broker recognises.
        """
        missing = 0
        for _, some in groupby(pairs, key=lambda pair: pair[1].routing.target_queue or pair[1].queue):
            batch = list(some)  # one queue, so one chunk: whole or not at all
            await self._broker.publish([marked_like(seal(message), message, one.envelope) for one, message in batch])
            fault_point("dead_letters.published")
            ids = [letter.id for letter, _ in batch]
            missing += len(await self._broker.dead_letters.discard(ids, actor=self._actor))
        return missing

    async def _dead_now(self) -> dict[Place, int]:
        stats = await self._broker.stats()
        return {(queue.name, group.name): group.dead for queue in stats for group in queue.groups}


def inspection(letter: DeadLetter) -> Inspection:
    """Return all there is to say about a letter."""
    message = opened(letter)
    raw = letter.envelope.body if message is None else None
    return Inspection(letter=letter, cause=cause_of(letter), message=message, raw=raw)


def _takes(left: dict[Place, int], place: Place) -> bool:
    """Count down the letters a place had at the beginning: what dies later comes behind them and is left alone."""
    left[place] = left.get(place, 0) - 1
    return left[place] >= 0


def _total(dead: dict[Place, int], which: LetterFilter) -> int | None:
    found = [
        count for (queue, group), count in dead.items() if which.name in (None, queue) and which.group in (None, group)
    ]
    return sum(found) if found else None
