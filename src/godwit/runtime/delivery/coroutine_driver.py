"""Driving a coroutine step by step in a context of its own, whichever task does it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from types import CoroutineType, coroutine
from typing import Any, TypeAlias

from godwit.core.messages.message import Message
from godwit.runtime.worker.consumer import CURRENT, SettledByHand

Steps: TypeAlias = Coroutine[Any, Any, Any] | Generator[Any, Any, Any]


def first_step(handler: Callable[[Message], Any], message: Message, held: SettledByHand) -> tuple[Steps | None, Any]:
    """Call a handler and let it run; return it and what it waits for, or None and its result."""
    CURRENT.set((held,))
    called = handler(message)
    steps: Steps = called if type(called) is CoroutineType else called.__await__()
    try:
        return steps, steps.send(None)
    except StopIteration as end:
        return None, end.value


@coroutine
def in_context(context: Context, steps: Steps, waits_for: Any) -> Generator[Any, Any, Any]:
    """Carry a begun coroutine to its end and return its result.

    What it waits for goes to the task that awaits this, and what comes back goes to it: as `yield from` would do, in
    a context that is not the task's.
    """
    run, send, throw = context.run, steps.send, steps.throw
    while True:
        step: Callable[[Any], Any] = send
        try:
            answer = yield waits_for
        except BaseException as error:  # noqa: BLE001 (also cancellation and the closing of a generator)
            step, answer = throw, error
        try:
            waits_for = run(step, answer)
        except StopIteration as end:
            return end.value
        finally:
            answer = None  # an exception and the frame that holds it would keep each other alive
