"""Running a handler over what was delivered, and settling by how it ended."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Executor
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, Final, cast

import msgspec

from godwit.brokers.contract import Ack, Delivery, Settlement
from godwit.core.error_text import error_text
from godwit.core.errors import InvalidMessage
from godwit.core.failures.judgement import BatchFailed, Judgement, Permanent
from godwit.core.logs import get_logger
from godwit.core.messages.message import Message
from godwit.runtime.delivery.coroutine_driver import first_step, in_context
from godwit.runtime.delivery.in_flight import HeldDelivery
from godwit.runtime.delivery.time_limit import TimeLimit
from godwit.runtime.threads import raisable
from godwit.runtime.worker.consumer import CURRENT, Consumer

MAX_RESULT_BYTES: Final = 4096
_NOT_OURS: Final = (KeyboardInterrupt, GeneratorExit)
"""What ends a handler from outside: Ctrl-C, and the end of its event loop."""

log = get_logger(__name__)
_encoder = msgspec.json.Encoder()


class Execution:
    """Runs one consumer's handler; the caller gives it slots."""

    def __init__(
        self,
        consumer: Consumer,
        threads: Executor,
        *,
        settle: Callable[[Settlement], None],
        ended: Callable[[asyncio.Task[None]], None],
        pass_on: Callable[[HeldDelivery, str], bool],
    ) -> None:
        self._consumer = consumer
        self._settle = settle
        self._handler, self._types = consumer.handler, consumer.types
        self._filters, self._checks = consumer.filters, consumer.checks
        self._ended, self._pass_on = ended, pass_on
        self._threads = threads
        self._limit = TimeLimit(consumer.time_limit.total_seconds())
        self.stopping = False
        self.filtered = 0
        """Messages the group's filter did not want."""

    async def run(self, held: Sequence[HeldDelivery]) -> None:
        """Handle what is held: one message, or a batch."""
        task = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            await self._run(held, task)
        finally:
            self._ended(task)

    async def _run(self, held: Sequence[HeldDelivery], task: asyncio.Task[None]) -> None:
        opened = [(one, message) for one in held if (message := self._open(one)) is not None]
        if not opened:
            return
        kept = [one for one, _ in opened]
        CURRENT.set(tuple(kept))
        given = opened[0][1] if self._consumer.batch is None else [message for _, message in opened]
        started = time.monotonic()
        try:
            is_async = self._consumer.is_async
            result = await (self._limited(self._handler(given), task) if is_async else self._thread(given, task))
        except asyncio.CancelledError:
            self._cancelled(kept, started)
        except BatchFailed as failed:
            self._batch_failed(kept, failed, started)
        except _NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
            for one in kept:
                self._failed(one, error, _milliseconds_since(started))
        else:
            run_ms = _milliseconds_since(started)
            stored = _stored(result) if result is not None else None
            for one in kept:
                one.done(run_ms, stored)

    def begin(self, waiting: deque[HeldDelivery], task: asyncio.Task[None]) -> Coroutine[Any, Any, None] | None:
        """Run the handlers of those in line, each until it ends; return what is left of the first that waits.

        The context of each is its own from the first step to the last, though one task begins them all. What one took
        is known when the next begins, so the clock is read once for both.
        """
        handler, settle = self._handler, self._settle
        now = time.monotonic()
        # A handler that cancels its own task must not hit the next one.
        while waiting and not task.cancelling():
            held, started, context = waiting.popleft(), now, contextvars.copy_context()
            try:
                message = self._open(held)
                if message is None:
                    continue
                steps, given = context.run(first_step, handler, message, held)
            except asyncio.CancelledError:
                self._cancelled([held], started)
            except _NOT_OURS:
                raise
            except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
                self._failed(held, error, _milliseconds_since(started))
            else:
                if steps is not None:
                    return self._finish(held, task, started, in_context(context, steps, given))
                now = time.monotonic()
                if not held.settled:  # as `HeldDelivery.done` does; nearly every message comes this way
                    held.settled = True
                    run_ms = int((now - started) * 1000 + 0.5)
                    settle(Ack(held.delivery.ack_id, run_ms, None if given is None else _stored(given)))
                continue
            now = time.monotonic()
        return None

    async def _finish(self, held: HeldDelivery, task: asyncio.Task[None], started: float, rest: Awaitable[Any]) -> None:
        """Carry a handler that waits to its end."""
        self._limit.enter(task, started)
        try:
            result = await rest
        except asyncio.CancelledError:
            if self._limit.is_late(task):
                task.uncancel()
                self._failed(held, self._too_slow(), _milliseconds_since(started))
            else:
                self._cancelled([held], started)
        except _NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its answer
            self._failed(held, error, _milliseconds_since(started))
        else:
            held.done(_milliseconds_since(started), None if result is None else _stored(result))
        finally:
            self._limit.leave(task)

    async def _thread(self, given: Any, task: asyncio.Task[None]) -> Any:
        """Run a plain function. A thread cannot be stopped: when it takes too long its lease is no longer renewed."""
        context = contextvars.copy_context()
        call = partial(context.run, self._handler, given)
        result = await asyncio.get_running_loop().run_in_executor(self._threads, raisable, call)
        kind = type(result)  # isinstance() would ask the result itself, whose class may raise
        if issubclass(kind, GeneratorType | AsyncGeneratorType):
            raise TypeError("the handler returned a generator, which never ran")
        return await self._limited(result, task) if issubclass(kind, CoroutineType) else result

    async def _limited(self, running: Awaitable[Any], task: asyncio.Task[None]) -> Any:
        """Wait for a handler as long as its time limit allows."""
        self._limit.enter(task, time.monotonic())
        try:
            return await running
        except asyncio.CancelledError:
            if not self._limit.is_late(task):
                raise
            task.uncancel()
            raise self._too_slow() from None
        finally:
            self._limit.leave(task)

    def _too_slow(self) -> TimeoutError:
        limit = self._consumer.time_limit.total_seconds()
        return TimeoutError(f"the handler took longer than its limit of {limit:g} s")

    def _open(self, held: HeldDelivery) -> Message | None:
        """Decode a message, or settle it: as one that can never be handled, or as what a filter or check raised."""
        try:
            return self._wanted(held)
        except _NOT_OURS:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a filter or check raises is the message's answer
            self._failed(held, error, 0)
            return None

    def _wanted(self, held: HeldDelivery) -> Message | None:
        try:
            message = held.delivery.envelope.open()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._failed(held, Permanent(f"the message cannot be decoded: {error}"), 0)
            return None
        if self._types is not None and message.type not in self._types:
            if not self._pass_on(held, message.type):
                group = held.delivery.group
                self._failed(held, Permanent(f"no live member of group {group!r} handles the type {message.type!r}"), 0)
            return None
        if self._filters:
            wants = self._filters.get(held.delivery.queue)
            if wants is not None and not wants(message):
                self.filtered += 1
                held.done(0, None)
                return None
        if self._checks and not self._fits(message, held):
            return None
        return message

    def _fits(self, message: Message, held: HeldDelivery) -> bool:
        """Say whether a payload fits the schema of its type; settle it as one that can never be handled if not."""
        check = self._checks.get(message.type)
        if check is not None:
            try:
                check(message.payload)
            except InvalidMessage as error:
                self._failed(held, error, 0)
                return False
        return True

    def _cancelled(self, held: Sequence[HeldDelivery], started: float) -> None:
        for one in held:
            if self.stopping:
                one.hand_back()
            else:
                self._failed(one, RuntimeError("the handler was cancelled"), _milliseconds_since(started))

    def _batch_failed(self, held: Sequence[HeldDelivery], failed: BatchFailed, started: float) -> None:
        run_ms = _milliseconds_since(started)
        errors = failed.errors if type(failed.errors) is dict else dict.fromkeys(range(len(held)), failed)
        for index, one in enumerate(held):
            error = errors.get(index)
            if error is None:
                one.done(run_ms, None)
            else:
                self._failed(one, error, run_ms)

    def _failed(self, held: HeldDelivery, error: BaseException, run_ms: int) -> None:
        _log_failure(held.delivery, held.failed(error, run_ms), error)

    def close(self) -> None:
        """Stop watching times."""
        self._limit.close()


def _log_failure(delivery: Delivery, judgement: Judgement, error: BaseException) -> None:
    """Log a failed attempt as a warning and a message given up as an error, with traceback; a postponement as news."""
    fields: dict[str, object] = {
        "queue": delivery.queue,
        "group": delivery.group,
        "message_id": delivery.envelope.id,
        "attempt": delivery.attempt,
        "error": judgement.error.message,
        "error_type": judgement.error.type,
    }
    if judgement.delay is None:
        log.error("message given up", exc_info=error, **fields, kind=judgement.kind)
    elif judgement.postponed:
        log.info("message postponed", **fields, again_in=judgement.delay.total_seconds())
    else:
        log.warning("handler failed", exc_info=error, **fields, again_in=judgement.delay.total_seconds())


def _milliseconds_since(started: float) -> int:
    return int((time.monotonic() - started) * 1000 + 0.5)


def _stored(result: object) -> bytes | None:
    """Return what a handler returned, as the journal keeps it."""
    try:
        encoded = _encoder.encode(result)
    except _NOT_OURS:
        raise
    except BaseException as error:  # noqa: BLE001 - objects of an application may raise anything
        log.warning("handler result not kept", reason=error_text(error))
        return None
    if len(encoded) > MAX_RESULT_BYTES:
        log.warning("handler result not kept", reason=f"larger than {MAX_RESULT_BYTES} bytes")
        return None
    return encoded
