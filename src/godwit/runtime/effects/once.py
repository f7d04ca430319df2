"""Effects that happen once: a key is claimed in the ledger, the effect made, the key remembered as done.

What remains: a worker that dies between its effect and the mark of the key leaves a claim; the one that gets the
message again makes the effect a second time. With `connection`, an effect in the store's own database and the mark
are one transaction, and nothing remains.

A plain function cannot be stopped: beyond its time limit its thread runs on. Its key stays claimed, in the thread's own
name, until the thread has ended, and is then marked done or given back by how it ended.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections.abc import Callable, Coroutine
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final

import msgspec

from godwit.core.error_text import error_text
from godwit.core.errors import EffectHeld, InvalidSetting, StoreError
from godwit.core.failures.judgement import Retry
from godwit.core.logs import get_logger
from godwit.core.messages.message import Message
from godwit.runtime.handlers.signature import is_asynchronous
from godwit.runtime.threads import raisable
from godwit.store.effects import EffectOutcome, Ledger

DEFAULT_TTL: Final = timedelta(days=7)
DEFAULT_HOLD: Final = timedelta(minutes=5)
MAX_RESULT_BYTES: Final = 4096
MAX_KEY_LENGTH: Final = 512
_FIRST_WAIT: Final = timedelta(milliseconds=20)
PATIENCE: Final = timedelta(seconds=10)
_LONGEST_WAIT: Final = timedelta(seconds=30)
RUN_ON_HOLD: Final = timedelta(seconds=30)
"""How long a key stays claimed after the death of a process in which a thread ran on; renewed each third of it."""
_STORE_PAUSE: Final = timedelta(seconds=1)

log = get_logger(__name__)


class Turn:
    """True when it is our turn to make the effect; else it was made before, and `result` is what came of it."""

    def __init__(self, *, ours: bool, result: Any = None) -> None:
        self._ours = ours
        self.result = result
        """Set it before the block ends, and later callers find it here (JSON, up to 4 KB)."""

    def __bool__(self) -> bool:
        """Say whether the effect is to be made."""
        return self._ours


class Once:
    """An effect under one key, with `async with`; see `MessageQueueManager.once`."""

    def __init__(
        self,
        ledger: Ledger,
        key: str,
        *,
        ttl: timedelta = DEFAULT_TTL,
        hold: timedelta = DEFAULT_HOLD,
        holder: str | None = None,
        connection: Any = None,
    ) -> None:
        if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_LENGTH or "\0" in key:
            raise InvalidSetting("key", key, f"1 to {MAX_KEY_LENGTH} characters")
        for name, value in (("ttl", ttl), ("hold", hold)):
            if value <= timedelta(0):
                raise InvalidSetting(name, value, "more than 0")
        self._ledger, self._key, self._ttl, self._hold = ledger, key, ttl, hold
        self._holder = holder or secrets.token_hex(8)
        self._connection = connection
        self._turn = Turn(ours=False)
        self._runs_on = False

    async def __aenter__(self) -> Turn:
        """Claim the key; raises `EffectHeld` while another worker holds it."""
        if self._connection is not None:
            claim = await self._ledger.finish_within(self._connection, self._key, holder=self._holder, ttl=self._ttl)
        else:
            claim = await self._ledger.claim(self._key, holder=self._holder, hold=self._hold, ttl=self._ttl)
        if claim.outcome is EffectOutcome.HELD:
            raise EffectHeld(self._key, claim.held_for.total_seconds())
        result = None if claim.result is None else msgspec.json.decode(claim.result)
        self._turn = Turn(ours=claim.outcome is EffectOutcome.WON, result=result)
        return self._turn

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Mark the key done, or give it back when the effect did not happen."""
        if self._runs_on or not self._turn or self._connection is not None:
            return  # with the application's transaction the mark is kept or lost together with the effect
        if kind is not None:
            # Shielded: a cancelled handler must not keep the key until the hold ends.
            await asyncio.shield(self._ledger.release(self._key, holder=self._holder))
            return
        result = _encoded(self._turn.result)
        if not await self._ledger.finish(self._key, holder=self._holder, ttl=self._ttl, result=result):
            log.warning("effect took longer than its key was held", key=self._key)

    async def run_on(self) -> None:
        """Claim the key in the name of a thread that runs on: the message, delivered again, waits for it too."""
        self._runs_on = True
        former, self._holder = self._holder, f"{self._holder}/{secrets.token_hex(8)}"
        await self._keep(former)

    async def outlast(self, running: asyncio.Future[Any]) -> None:
        """Hold the key while that thread runs, which no caller waits for any more; then mark it by how it ended."""
        while not running.done():
            await asyncio.wait([running], timeout=RUN_ON_HOLD.total_seconds() / 3)
            if not running.done():
                await self._keep(self._holder)
        while not await self._ended(running):  # noqa: ASYNC110 - the store does not say when it is back
            await asyncio.sleep(_STORE_PAUSE.total_seconds())

    async def _keep(self, former: str) -> None:
        try:
            kept = await self._ledger.keep(self._key, holder=former, to=self._holder, hold=RUN_ON_HOLD, ttl=self._ttl)
        except StoreError as error:
            log.warning("key of an effect that runs on not renewed", key=self._key, error=error_text(error))
        else:
            if not kept:
                log.warning("effect took longer than its key was held", key=self._key)

    async def _ended(self, running: asyncio.Future[Any]) -> bool:
        """Mark the key by how the thread ended; False when the store does not answer."""
        try:
            if running.cancelled() or running.exception() is not None:
                await self._ledger.release(self._key, holder=self._holder)
            else:
                result = _encoded(running.result())
                await self._ledger.finish(self._key, holder=self._holder, ttl=self._ttl, result=result)
        except StoreError as error:
            log.warning("effect not marked yet", key=self._key, error=error_text(error))
            return False
        return True


def _encoded(result: Any) -> bytes | None:
    """Return a result as JSON, if it is any and not too long; the effect has happened, so nothing here may fail."""
    if result is None:
        return None
    try:
        data = msgspec.json.encode(result)
    except (KeyboardInterrupt, SystemExit, asyncio.CancelledError):
        raise
    except BaseException as error:  # noqa: BLE001 - objects of an application may raise anything
        log.warning("result of an effect not kept", reason=error_text(error))
        return None
    if len(data) > MAX_RESULT_BYTES:
        log.warning("result of an effect not kept", reason=f"larger than {MAX_RESULT_BYTES:,} bytes", bytes=len(data))
        return None
    return data


KeyOf = Callable[[Message], str | None]
"""Names the effect of a message; None when it may happen again."""


Beside = Callable[[str, Callable[[], Coroutine[Any, Any, object]]], object]
"""Keeps something running in the background, under a name."""


def handled_once(
    handler: Callable[..., Any],
    key_of: KeyOf,
    make: Callable[..., Once],
    group: str,
    *,
    beside: Beside,
    patience: timedelta = PATIENCE,
) -> Callable[..., Any]:
    """Return a handler that makes the effect of a message once per group and key.

    The claim is held in the message's name: delivered again, it goes on at once, since its former worker is gone.
    `patience` is how long a message waits for another one with its key before it is postponed.
    """
    make_effect = _coroutine(handler) if is_asynchronous(handler) else _plain(handler, beside)

    @functools.wraps(handler)
    async def handle(message: Message) -> Any:
        key = key_of(message)
        if key is None:
            return await make_effect(message, None)
        wait, waited = _FIRST_WAIT, timedelta(0)
        while True:
            try:
                once = make(f"{group}/{key}", holder=message.id)
                async with once as turn:
                    if turn:
                        turn.result = await make_effect(message, once)
                    return turn.result
            except EffectHeld as held:
                # Another message with this key is being handled: soon it is done. A retry would count as a failure.
                if waited >= patience:
                    raise Retry(str(held), after=min(_LONGEST_WAIT, timedelta(seconds=held.seconds))) from held
            await asyncio.sleep(wait.total_seconds())
            waited, wait = waited + wait, min(2 * wait, PATIENCE / 10)

    return handle


_Effect = Callable[[Message, Once | None], Coroutine[Any, Any, Any]]


def _coroutine(handler: Callable[..., Any]) -> _Effect:
    async def effect(message: Message, _: Once | None) -> Any:
        return await handler(message)

    return effect


def _plain(handler: Callable[..., Any], beside: Beside) -> _Effect:
    async def effect(message: Message, once: Once | None) -> Any:
        running = asyncio.ensure_future(asyncio.to_thread(raisable, partial(handler, message)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            if once is not None and not running.done():
                await asyncio.shield(once.run_on())
                beside("once", partial(once.outlast, running))
            raise

    return effect
