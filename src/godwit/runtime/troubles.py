"""What goes wrong with single queues or shards while the others go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Final

from godwit.core.clock import Clock, milliseconds
from godwit.core.error_text import error_text, type_name
from godwit.core.logs import get_logger

FIRST_PAUSE: Final = timedelta(seconds=1)
LONGEST_PAUSE: Final = timedelta(seconds=10)

log = get_logger(__name__)


class Trouble:
    """What a queue or shard failed with last, and until when it is left alone."""

    def __init__(self, since_ms: int) -> None:
        self.since_ms, self.until_ms, self.pause = since_ms, since_ms, FIRST_PAUSE
        self.error = ""


class Troubles:
    """Queues or shards that fail, each with a growing pause of its own; logged when it begins and when it is over.

    `work` is what fails, such as "recording".
    """

    longest = LONGEST_PAUSE

    def __init__(self, work: str, clock: Clock) -> None:
        self._work, self._clock = work, clock
        self._known: dict[str, Trouble] = {}

    def __iter__(self) -> Iterator[tuple[str, Trouble]]:
        """Give what fails at the moment, by name."""
        return iter(sorted(self._known.items()))

    def __len__(self) -> int:
        """Return how many fail at the moment."""
        return len(self._known)

    def rests(self, name: str) -> bool:
        """Say whether a queue or shard is in its pause."""
        trouble = self._known.get(name)
        return trouble is not None and self._clock.now_ms() < trouble.until_ms <= self._latest_ms()

    def resting(self) -> list[str]:
        """Return what is in its pause."""
        return [name for name in self._known if self.rests(name)]

    def began(self, name: str, error: BaseException) -> None:
        """Note a failure: the queue or shard is left alone for a while, longer after each."""
        now_ms = self._clock.now_ms()
        trouble = self._known.get(name)
        if trouble is None:
            trouble = self._known[name] = Trouble(now_ms)
            log.warning("one part waits", work=self._work, part=name, error=error_text(error), kind=type_name(error))
        else:
            trouble.pause = min(trouble.pause * 2, self.longest)
        trouble.error = f"{type_name(error)}: {error_text(error)}"
        trouble.until_ms = now_ms + milliseconds(trouble.pause)

    def over(self, name: str) -> None:
        """Note that a queue or shard works."""
        if self._known and self._known.pop(name, None) is not None:
            log.info("one part goes on", work=self._work, part=name)

    def forget(self, there: Iterable[str]) -> None:
        """Forget all but these: the others are gone."""
        for name in set(self._known).difference(there):
            del self._known[name]

    def _latest_ms(self) -> int:
        """Return when the longest pause that begins now ends: a clock that was set back must not prolong one."""
        return self._clock.now_ms() + milliseconds(self.longest)
