"""Settling in batches: one round trip for all that ended while the last one was under way."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from godwit.brokers.contract import Settlement, Transport
from godwit.core import background
from godwit.core.error_text import error_text
from godwit.core.errors import BrokerClosed, BrokerError
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.core.names import AckId

BATCH: Final = 500
_PAUSE_AFTER_ERROR: Final = 0.25

Settled = Callable[[Sequence[Settlement], Sequence[AckId]], Awaitable[None]]
"""Told what was settled, and which ack ids of it were refused."""

log = get_logger(__name__)


class Settler:
    """Takes settlements one by one and carries them out together.

    Without load a settlement goes out at the end of the loop's present turn. While the broker is away they wait here
    and are repeated: a lease that ran out meanwhile is refused, which changes nothing.
    """

    def __init__(self, broker: Transport, *, settled: Settled) -> None:
        self._broker = broker
        self._settled = settled
        self._waiting: list[Settlement] = []
        self._task: asyncio.Task[None] | None = None
        self._busy = False
        self._trouble = RepeatedTrouble(log, "settling waits for the broker")

    def add(self, settlement: Settlement) -> None:
        """Settle soon."""
        self._waiting.append(settlement)
        if not self._busy:
            self._busy = True
            self._task = asyncio.get_running_loop().create_task(self._run(), name="godwit settler")

    async def _run(self) -> None:
        try:
            await self._settle_all()
        except BrokerClosed:
            log.warning("settlements lost with a closed broker", count=len(self._waiting))
        finally:
            self._busy = False

    async def _settle_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting[:BATCH], self._waiting[BATCH:]
            try:
                refused = await self._broker.settle(batch)
            except BrokerClosed:
                self._waiting = batch + self._waiting
                raise
            except BrokerError as error:
                self._trouble.came(error, count=len(batch))
                self._waiting = batch + self._waiting
                await asyncio.sleep(_PAUSE_AFTER_ERROR)
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - the next settlements must not wait for this one
                background.failed("settler", error, count=len(batch))
                await self._settle_apart(batch)
            else:
                self._trouble.over("settling goes on")
                await self._tell(batch, refused)

    async def _settle_apart(self, batch: Sequence[Settlement]) -> None:
        """Settle one by one what could not be settled together; the lease of one that cannot be at all runs out."""
        for settlement in batch:
            try:
                refused = await self._broker.settle([settlement])
            except (BrokerClosed, asyncio.CancelledError):
                raise
            except BaseException as error:  # noqa: BLE001 - as above
                log.warning("a settlement is given up: its message comes again", error=error_text(error))
                refused = [settlement.ack_id]
            await self._tell([settlement], refused)

    async def _tell(self, batch: Sequence[Settlement], refused: Sequence[AckId]) -> None:
        if refused:
            log.warning("settlements refused: the lease was lost before", count=len(refused))
        try:
            await self._settled(batch, refused)
        except asyncio.CancelledError:
            raise
        except BrokerError as error:
            log.warning("breakers are not told to the others", error=str(error))
        except BaseException as error:  # noqa: BLE001 - what is counted and shown does not hold up settling
            background.failed("settler", error, count=len(batch))

    async def drain(self) -> None:
        """Return when everything handed in is settled."""
        while self._task is not None and not self._task.done():
            await asyncio.wait([self._task])
