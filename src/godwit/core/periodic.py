"""Steps that are taken again and again, whatever happens to one turn of them.

Every task that does something, pauses and does it again is a step here: of a worker, a manager or the store's services.
"""

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
    """Repeats the steps of one owner, such as a worker; with `random` those of many owners are a little apart.

    `unanswered` is called when a step got no answer from the broker or the store.
    """

    def __init__(
        self, owner: str, *, random: Random | None = None, unanswered: Callable[[], None] = lambda: None
    ) -> None:
        self._owner, self._random, self._unanswered = owner, random, unanswered

    async def repeat(
        self,
        name: str,
        step: Callable[[], Awaitable[object]],
        every: timedelta,
        *,
        at_once: bool = False,
        when: Callable[[], Awaitable[None]] | None = None,
        within: timedelta | None = STEP_WITHIN,
        after_error: timedelta | None = None,
    ) -> None:
        """Repeat a step until the broker is closed. It may return how long to wait for its next turn.

        `after_error` is how long to wait after a turn that failed, for steps that follow each other closely.
        """
        pause = timedelta(0) if at_once else every
        trouble = RepeatedTrouble(log, "a periodic step got no answer", step=name, owner=self._owner)
        limit = None if within is None else within.total_seconds()
        while True:
            await asyncio.sleep(self._wait(pause.total_seconds()))
            if when is not None:
                await when()
            pause = after_error or every
            try:
                async with asyncio.timeout(limit):
                    wished = await step()
                pause = wished if isinstance(wished, timedelta) else every
                trouble.over("a periodic step is answered again")
            except BrokerClosed:
                return
            except (GodwitError, TimeoutError) as error:
                self._unanswered()
                trouble.came(error)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - it must be done again, whatever happened this time
                background.failed(name, error, owner=self._owner)

    def _wait(self, seconds: float) -> float:
        """Return how long to wait: what is done every few seconds is done in one moment, else a little apart."""
        if seconds >= 1:
            return until_beat(asyncio.get_running_loop().time(), seconds)
        return seconds if self._random is None else seconds * (0.75 + self._random.random() / 2)
