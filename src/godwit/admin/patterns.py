"""Failure patterns: dead letters that died of the same, counted; and a watch that says when one of them grows."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from godwit.admin.letter_filter import Cause, cause_of
from godwit.admin.letter_pages import pages
from godwit.brokers.contract import Administration, DeadLetter, LetterId
from godwit.core.clock import SYSTEM_CLOCK, Clock, from_ms
from godwit.core.failures.failure import FailureKind
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.periodic import PeriodicTasks
from godwit.telemetry.alerts import CLEAR_AT, Alert, AlertName, AlertRule, AlertRules, Reading
from godwit.telemetry.sinks import Sink, tell
from godwit.telemetry.window import MONOTONIC_CLOCK, Window

MOST_PATTERNS: Final = 1_000
"""Patterns told apart; further ones are counted together under `OTHER`, so that memory stays bounded."""
OTHER: Final = "other"
LETTERS_PER_LOOK: Final = 20_000
GROWING_ABOVE: Final = 10
INTERVAL: Final = timedelta(seconds=30)


class FailurePattern(msgspec.Struct, frozen=True, kw_only=True):
    """A way to fail: how often, by kind and by place, since when, and a letter to look at."""

    fingerprint: str
    type: str
    message: str
    count: int
    kinds: dict[FailureKind, int]
    places: dict[str, int]
    first_seen: datetime
    last_seen: datetime
    sample: LetterId
    sample_message_id: MessageId


class _Tally:
    """What is known of one pattern so far; the newest letter is the sample."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause
        self.kinds: Counter[FailureKind] = Counter()
        self.places: Counter[str] = Counter()
        self.first_ms = self.last_ms = 0
        self.sample: DeadLetter | None = None

    def add(self, letter: DeadLetter) -> None:
        self.kinds[letter.kind] += 1
        self.places[f"{letter.queue}/{letter.group}"] += 1
        if self.sample is None or letter.dead_at_ms < self.first_ms:
            self.first_ms = letter.dead_at_ms
        if self.sample is None or letter.dead_at_ms >= self.last_ms:
            self.last_ms = letter.dead_at_ms
            # Only its ids are shown later: its body and history are not worth holding on to.
            slim = msgspec.structs.replace(letter.envelope, body=b"")
            self.sample = msgspec.structs.replace(letter, envelope=slim, errors=())

    def pattern(self) -> FailurePattern | None:
        if self.sample is None:
            return None
        return FailurePattern(
            fingerprint=self.cause.fingerprint,
            type=self.cause.type,
            message=self.cause.message,
            count=self.kinds.total(),
            kinds=dict(self.kinds),
            places=dict(self.places),
            first_seen=from_ms(self.first_ms),
            last_seen=from_ms(self.last_ms),
            sample=self.sample.id,
            sample_message_id=self.sample.envelope.id,
        )


async def counted(letters: AsyncIterator[DeadLetter]) -> list[FailurePattern]:
    """Count letters by what they died of, the most frequent first."""
    tallies: dict[str, _Tally] = {}
    async for letter in letters:
        cause = cause_of(letter)
        tally = tallies.get(cause.fingerprint)
        if tally is None:
            if len(tallies) >= MOST_PATTERNS:
                cause = Cause(fingerprint=OTHER, type=OTHER, message="patterns beyond the first thousand")
            tally = tallies.setdefault(cause.fingerprint, _Tally(cause))
        tally.add(letter)
    found = [pattern for tally in tallies.values() if (pattern := tally.pattern()) is not None]
    return sorted(found, key=lambda pattern: (-pattern.count, pattern.fingerprint))


class PatternWatch:
    """Raises HIGH_ERROR_RATE for a failure pattern when more than `threshold` letters show it within five minutes.

    The alert's subject is `queue/group/fingerprint`. What died before the watch began is old news. Letters that were
    replayed or discarded before the next look are not seen.
    """

    def __init__(
        self,
        broker: Administration,
        sinks: Sequence[Sink],
        *,
        threshold: int = GROWING_ABOVE,
        clock: Clock = SYSTEM_CLOCK,
        timer: Clock = MONOTONIC_CLOCK,
    ) -> None:
        self._broker, self._sinks, self._timer = broker, tuple(sinks), timer
        self._since_ms, self._began_ms = clock.now_ms(), timer.now_ms()
        rule = AlertRule(name=AlertName.HIGH_ERROR_RATE, threshold=threshold, clear_at=threshold * CLEAR_AT)
        self._alerts = AlertRules([rule], clock=clock)
        self._last: dict[tuple[QueueName, GroupName], LetterId] = {}
        self._windows: dict[str, Window] = {}

    async def tick(self) -> list[Alert]:
        """Read the letters that are new, tell the sinks which patterns began or ceased to grow, and return that."""
        for queue in await self._broker.stats():
            for group in queue.groups:
                if group.dead:
                    await self._look(queue.name, group.name)
        sums = {subject: window.totals()[0] for subject, window in self._windows.items()}
        for subject in [subject for subject, total in sums.items() if not total]:
            del self._windows[subject]
        changes = self._alerts.evaluate(
            Reading(AlertName.HIGH_ERROR_RATE, subject, total) for subject, total in sums.items()
        )
        await tell(self._sinks, changes)
        return changes

    async def run(self, interval: timedelta = INTERVAL) -> None:
        """Tick until cancelled or the broker is closed; one that does not answer is looked at next time."""
        await PeriodicTasks("dead letters").repeat("failure patterns", self.tick, interval, at_once=True)

    async def _look(self, queue: QueueName, group: GroupName) -> None:
        seen = 0
        async for page in pages(self._broker.dead_letters, queue, group, self._last.get((queue, group))):
            for letter in page:
                if letter.queue == queue and letter.dead_at_ms >= self._since_ms:
                    self._add(f"{queue}/{group}/{cause_of(letter).fingerprint}")
            self._last[queue, group] = page[-1].id
            seen += len(page)
            if seen >= LETTERS_PER_LOOK:  # the rest at the next look, so that this one stays short
                return

    def _add(self, subject: str) -> None:
        window = self._windows.get(subject)
        if window is None:
            if len(self._windows) >= MOST_PATTERNS:
                subject = OTHER
            window = self._windows.setdefault(subject, Window(columns=1, clock=self._timer, since_ms=self._began_ms))
        window.sums[window.row()] += 1
