"""Calling plain functions in daemon threads: one that hangs must not keep the process from ending."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def raisable(function: Callable[[], T]) -> T:
    """Call a function whose error is to be raised elsewhere: a future takes any error but `StopIteration`."""
    try:
        return function()
    except StopIteration as error:
        raise RuntimeError("a plain function raised StopIteration") from error


async def in_daemon_thread(function: Callable[[], T], *, name: str) -> T:
    """Call a function in a thread of its own; a caller that no longer waits leaves it running."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[T] = loop.create_future()

    def tell(answer: list[T], error: BaseException | None) -> None:
        if answered.done():
            return
        if error is not None:
            answered.set_exception(error)
        else:
            answered.set_result(answer[0])

    def call() -> None:
        answer: list[T] = []
        error: BaseException | None = None
        try:
            answer.append(raisable(function))
        except BaseException as raised:  # noqa: BLE001 # raised where the caller waits
            error = raised
        with suppress(RuntimeError):  # the loop is gone: no caller waits any more
            loop.call_soon_threadsafe(tell, answer, error)

    threading.Thread(target=call, name=name, daemon=True).start()
    return await answered
