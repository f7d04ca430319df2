"""What a worker does again and again beside pulling, whatever happens to one turn of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Final

from godwit.core import background
from godwit.core.errors import BrokerClosed, GodwitError
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.core.tick_phase import until_beat

STEP_WITHIN: Final = timedelta(seconds=30)

log = get_logger(__name__)


class PeriodicTasks:
    """Repeats steps of one worker; all workers do so, a little apart."""

    def __init__(self, worker: str, random: Random, *, unanswered: Callable[[], None]) -> None:
        self._worker, self._random, self._unanswered = worker, random, unanswered

    async def repeat(
        self,
        name: str,
        step: Callable[[], Awaitable[object]],
        every: timedelta,
        *,
        at_once: bool = False,
        when: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Repeat a step until the broker is closed. It may return how long to wait for its next turn."""
        pause = timedelta(0) if at_once else every
        trouble = RepeatedTrouble(log, "a regular step waits for the broker", step=name, worker=self._worker)
        while True:
            await asyncio.sleep(self._wait(pause.total_seconds()))
            if when is not None:
                await when()
            pause = every
            try:
                async with asyncio.timeout(STEP_WITHIN.total_seconds()):
                    wished = await step()
                pause = wished if isinstance(wished, timedelta) else every
                trouble.over("a regular step goes on")
            except BrokerClosed:
                return
            except (GodwitError, TimeoutError) as error:
                self._unanswered()
                trouble.came(error)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - it must be done again, whatever happened this time
                background.failed(name, error, worker=self._worker)

    def _wait(self, seconds: float) -> float:
        """Return how long to wait: what is done every few seconds is done in one moment, else a little apart."""
        if seconds >= 1:
            return until_beat(asyncio.get_running_loop().time(), seconds)
        return seconds * (0.75 + self._random.random() / 2)
