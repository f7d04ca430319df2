"""Watches for poison messages: the broker isolates them in silence, so the dead letters are read.

It reads on from the last letter it saw. Letters that were replayed, discarded or moved into a dead letter queue before
the next look are not seen.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from godwit.core.clock import Clock
from godwit.core.failures.failure import FailureKind
from godwit.telemetry.window import MONOTONIC_CLOCK, Window

PAGES_PER_LOOK: Final = 20
"""A long history is read over several looks, so that one look stays short."""


class Letter(Protocol):
    """What is read of a dead letter."""

    @property
    def id(self) -> str: ...
    @property
    def kind(self) -> FailureKind: ...
    @property
    def dead_at_ms(self) -> int: ...


Page = Callable[[str, str, str | None], Awaitable[Sequence[Letter]]]
"""Gives the letters of (queue, group) beyond a letter's id, oldest first, a page at a time."""


class PoisonWatch:
    """Counts messages that became poison in the last minutes, by queue; what died before `since_ms` is old news."""

    def __init__(self, page: Page, *, since_ms: int, clock: Clock = MONOTONIC_CLOCK) -> None:
        self._page, self._since_ms, self._clock = page, since_ms, clock
        self._began_ms = clock.now_ms()
        self._last: dict[tuple[str, str], str] = {}
        self._windows: dict[str, Window] = {}

    async def look(self, queue: str, group: str, dead: int) -> None:
        """Read the new letters of a group that has `dead` of them now."""
        place = (queue, group)
        if not dead:
            return
        for _ in range(PAGES_PER_LOOK):
            letters = await self._page(queue, group, self._last.get(place))
            if not letters:
                return
            self._last[place] = letters[-1].id
            self._add(
                queue,
                sum(letter.kind is FailureKind.POISON and letter.dead_at_ms >= self._since_ms for letter in letters),
            )

    def recent(self, queue: str) -> int:
        """Return how many of a queue's messages became poison in the last minutes."""
        window = self._windows.get(queue)
        return int(window.totals()[0]) if window else 0

    def _add(self, queue: str, count: int) -> None:
        if count:
            window = self._windows.get(queue) or Window(columns=1, clock=self._clock, since_ms=self._began_ms)
            self._windows[queue] = window
            window.sums[window.row()] += count
