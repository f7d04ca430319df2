"""What every side of the comparison does alike: payloads, what a handler notes, and orders from the conductor.

It runs in two environments, so it imports nothing but the standard library. A producer process reads one order per line
from stdin and answers each with the seconds it took; a worker process writes down when it has handled everything.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any, Final

URL: Final = os.environ.get("PEERS_URL", "redis://127.0.0.1:6379/0")
FOLDER: Final = Path(os.environ.get("PEERS_FOLDER", "."))
BACKLOG: Final = int(os.environ.get("PEERS_BACKLOG", "0"))
"""How many messages wait before the worker starts."""
TIMED: Final = int(os.environ.get("PEERS_TIMED", "0"))
"""How many follow one by one, whose latency counts."""
RATE: Final = 200
CALLERS: Final = 50
TEXT: Final = "x" * 160

Payload = dict[str, Any]


def payload() -> Payload:
    """Return a payload of about 200 bytes as JSON that knows when it was made."""
    return {"sent": perf_counter_ns(), "text": TEXT}


class Notes:
    """What a handler notes; safe from several threads, and next to nothing to do."""

    def __init__(self) -> None:
        self._number = itertools.count(1)
        self._first = 0
        self._latencies: list[int] = []

    def seen(self, found: Payload) -> None:
        """Note one message."""
        now, number = perf_counter_ns(), next(self._number)
        if number == 1:
            self._first = now
        elif number == BACKLOG:
            self._write("drained", {"seconds": (now - self._first) / 1e9, "count": number - 1})
        if number > BACKLOG:
            self._latencies.append(now - found["sent"])
            if number == BACKLOG + TIMED:
                self._write("timed", {"latencies": self._latencies})

    def _write(self, name: str, value: dict[str, Any]) -> None:
        made = FOLDER / f"{name}.new"
        made.write_text(json.dumps(value))
        made.rename(FOLDER / name)


notes: Final = Notes()


def obey(one: Callable[[Payload], Any], many: Callable[[Sequence[Payload]], Any]) -> None:
    """Carry out orders with a synchronous client."""
    for line in sys.stdin:
        order = json.loads(line)
        count = order["count"]
        began = perf_counter()
        match order["do"]:
            case "single":
                for _ in range(count):
                    one(payload())
            case "bulk":
                payloads = [payload() for _ in range(count)]
                began = perf_counter()
                many(payloads)
            case "timed":
                for number in range(count):
                    time.sleep(max(0.0, began + number / RATE - perf_counter()))
                    one(payload())
            case _:
                answer(None)
                continue
        answer(perf_counter() - began)


async def obey_async(
    one: Callable[[Payload], Awaitable[Any]], many: Callable[[Sequence[Payload]], Awaitable[Any]]
) -> None:
    """Carry out orders with an asynchronous client; it can also be called by many at once."""

    async def caller(count: int) -> None:
        for _ in range(count):
            await one(payload())

    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        count = order["count"]
        began = perf_counter()
        match order["do"]:
            case "single":
                await caller(count)
            case "concurrent":
                await asyncio.gather(*(caller(count // CALLERS) for _ in range(CALLERS)))
            case "bulk":
                payloads = [payload() for _ in range(count)]
                began = perf_counter()
                await many(payloads)
            case _:
                for number in range(count):
                    await asyncio.sleep(max(0.0, began + number / RATE - perf_counter()))
                    await one(payload())
        answer(perf_counter() - began)


def answer(seconds: float | None) -> None:
    """Tell the conductor."""
    sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")
    sys.stdout.flush()
