"""The watchdog of a worker: a consumer that should pull and does not is started again.

A loop that ended by an unforeseen error, or that hangs in a call whose answer went down with a server, would leave
a process that looks alive and never consumes again. Progress is judged from outside: a consumer with free slots passes
its turnstile or waits for messages for a time it named, whatever the broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from godwit.core import background
from godwit.core.error_text import error_text, type_name
from godwit.core.logs import get_logger

EVERY: Final = timedelta(seconds=4)
SOON: Final = timedelta(seconds=0.5)
"""How soon to look again while something is wrong."""
PATIENCE: Final = timedelta(seconds=8)
"""How long a consumer that does not wait for messages may stay away from its turnstile: a slow answer or two."""
AFTER_RETURN: Final = timedelta(seconds=1.5)
"""How long it may still hang in a call from before an outage once the broker answers again."""
LONGEST_PAUSE: Final = 30.0

log = get_logger(__name__)


class Watched:
    """A consumer's loop, and how to tell whether it gets on."""

    def __init__(
        self,
        run: Callable[[], Coroutine[Any, Any, None]],
        *,
        name: str,
        passed: Callable[[], float],
        has_room: Callable[[], bool],
        rests_until: Callable[[], float] = lambda: 0.0,
        patience: timedelta = PATIENCE,
    ) -> None:
        self.name = name
        self.restarts = 0
        self.trouble: str | None = None
        """Why it had to be started again, until it pulls."""
        self._run, self._passed, self._has_room, self._rests_until = run, passed, has_room, rests_until
        self._patience = patience.total_seconds()
        self._since = time.monotonic()
        """Before this nothing is held against it: it was just started, or had no free slot."""
        self._returned: float | None = None
        self._pause = 0.0
        self._again_at = 0.0
        self._task: asyncio.Task[None] | None = None
        self._cancelled = False
        self.when_ended: Callable[[], None] = lambda: None

    @property
    def needs_care(self) -> bool:
        """Whether to look again soon."""
        return self._task is None or self._returned is not None or self.trouble is not None

    def start(self) -> None:
        """Begin to pull."""
        self._since, self._returned = time.monotonic(), None
        self._task = asyncio.get_running_loop().create_task(self._run(), name=self.name)
        self._task.add_done_callback(lambda _: self.when_ended())

    def look(self, now: float) -> str | None:
        """Start it again when it ended or stands still; return why it had to be."""
        if self._task is None:
            self._resume(now)
            return None
        if self._task.done():
            return self._ended(self._task, now)
        if not self._has_room():
            self._since, self._returned = now, None
            return None
        passed = self._passed()
        if passed > self._since:
            self.trouble = None
        seen = max(self._since, passed)
        if self._returned is not None and seen >= self._returned:
            self._returned, self._pause = None, 0.0
        late = now - max(seen, self._rests_until()) > self._patience
        if not late and (self._returned is None or now - self._returned <= AFTER_RETURN.total_seconds()):
            return None
        self._task.cancel()
        self._task = None
        self._again_at = now
        self.trouble = f"no progress for {now - seen:.1f} s"
        return self.trouble

    def _resume(self, now: float) -> None:
        if now >= self._again_at:
            self.restarts += 1
            self.start()

    def _ended(self, task: asyncio.Task[None], now: float) -> str | None:
        error = asyncio.CancelledError("cancelled from inside") if task.cancelled() else task.exception()
        if error is None or self._cancelled:
            return None  # the broker was closed, or it was stopped
        if now - self._since > LONGEST_PAUSE:
            self._pause = 0.0
        self._again_at = now + self._pause
        self._pause = min(max(0.5, self._pause * 2), LONGEST_PAUSE)
        self._task = None
        self.trouble = f"{type_name(error)}: {error_text(error)}"
        background.failed("consumer", error, consumer=self.name)
        return self.trouble

    def broker_returned(self, now: float) -> None:
        """Expect a new turn soon: whatever it waits for may have been lost with the outage."""
        self._returned = now

    async def ended(self) -> None:
        """Wait for the end of the loop."""
        if self._task is not None:
            await asyncio.wait([self._task])

    def cancel(self) -> None:
        """End the loop wherever it is."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


class Watchdog:
    """Looks after the loops of a worker."""

    def __init__(self, watched: list[Watched]) -> None:
        self._watched = watched
        self._stopping = False
        self._called = asyncio.Event()
        for one in watched:
            one.when_ended = self._called.set

    @property
    def trouble(self) -> str | None:
        """What keeps a consumer from pulling, if anything does."""
        return next((f"{one.name}: {one.trouble}" for one in self._watched if one.trouble is not None), None)

    @property
    def restarts(self) -> int:
        """How often a loop had to be started again."""
        return sum(one.restarts for one in self._watched)

    def start(self) -> None:
        """Start every loop."""
        for one in self._watched:
            one.start()

    def tick(self) -> None:
        """Look at every loop once."""
        for one in self._watched:
            reason = one.look(time.monotonic())
            if reason is not None:
                log.error("consumer is started again", consumer=one.name, reason=reason)

    async def run(self) -> None:
        """Look again and again; nothing here asks the broker, so that a broker that hangs does not hang it."""
        while not self._stopping:
            pause = SOON if any(one.needs_care for one in self._watched) else EVERY
            with suppress(TimeoutError):
                async with asyncio.timeout(pause.total_seconds()):
                    await self._called.wait()
            self._called.clear()
            if not self._stopping:
                self.tick()

    def broker_returned(self) -> None:
        """Expect every consumer to pull again soon."""
        for one in self._watched:
            one.broker_returned(time.monotonic())
        self._called.set()

    async def stop(self) -> None:
        """Start nothing again, and wait for the loops to end."""
        self._stopping = True
        for one in self._watched:
            await one.ended()

    def cancel(self) -> None:
        """End loops that hang; those that ended are not touched."""
        self._stopping = True
        for one in self._watched:
            one.cancel()
