"""The supervisor of background tasks: a task that ends by an error is logged, counted, and started again.

Each long-lived object that runs something beside its calls has one `Background`. What health and metrics say about
them they ask here, for the whole process:

* `failures()` counts, by name, since the process began (`godwit_background_task_failures_total`);
* `report()` lists every supervised task that has not ended, and what it last failed with.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final, TypeVar
from weakref import WeakSet

from godwit.core.error_text import error_text, type_name
from godwit.core.errors import BrokerClosed
from godwit.core.logs import get_logger

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 30.0
STEADY_AFTER: Final = 60.0
"""Seconds without an error after which a task counts as well again: the next pause is the first one."""

T = TypeVar("T")
Run = Callable[[], Coroutine[Any, Any, object]]

log = get_logger(__name__)

_failures: Counter[str] = Counter()
_supervisors: WeakSet[Background] = WeakSet()


class BackgroundTask:
    """A task under supervision. `name` is a constant: what differs between two of a kind belongs into `detail`."""

    def __init__(self, owner: str, name: str, run: Run, *, detail: str = "") -> None:
        self.owner, self.name, self.detail = owner, name, detail
        self.failures = 0
        self.trouble: str | None = None
        """The last error, until the task has been steady again."""
        self._run = run
        self._pause = FIRST_PAUSE
        self._began, self._pausing = 0.0, False
        self.task: asyncio.Task[None] = asyncio.get_running_loop().create_task(
            self._repeat(), name=f"godwit {name} {detail}".rstrip()
        )

    @property
    def is_well(self) -> bool:
        """Whether it runs, without an error for a while."""
        return self.trouble is None or (not self._pausing and time.monotonic() - self._began >= STEADY_AFTER)

    async def _repeat(self) -> None:
        while True:
            self._began, self._pausing = time.monotonic(), False
            try:
                await self._run()
            except (KeyboardInterrupt, SystemExit):
                raise
            except BrokerClosed:
                return
            except asyncio.CancelledError as error:
                if is_cancelled():
                    raise
                # Something it waited for was cancelled under it: for the task that is an error as any other.
                await self._failed(error)
            except BaseException as error:  # noqa: BLE001 - no error of any kind may end a background task
                await self._failed(error)
            else:
                return

    async def _failed(self, error: BaseException) -> None:
        if time.monotonic() - self._began >= STEADY_AFTER:
            self._pause = FIRST_PAUSE
        self.failures += 1
        self.trouble = f"{type_name(error)}: {error_text(error)}"
        failed(self.name, error, owner=self.owner, detail=self.detail, again_in=self._pause)
        self._pausing = True
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        await asyncio.sleep(pause)


class Background:
    """The background tasks of one object, which closes them when it is closed."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self._tasks: dict[asyncio.Task[None], BackgroundTask] = {}
        self._errands: set[asyncio.Task[Any]] = set()
        _supervisors.add(self)

    def __iter__(self) -> Iterator[BackgroundTask]:
        return iter(tuple(self._tasks.values()))

    def keep(self, name: str, run: Run, *, detail: str = "") -> BackgroundTask:
        """Run a coroutine function until it returns; after an error start it again, with a growing pause."""
        kept = BackgroundTask(self.owner, name, run, detail=detail)
        self._tasks[kept.task] = kept
        kept.task.add_done_callback(self._tasks.pop)
        return kept

    def once(
        self, name: str, work: Coroutine[Any, Any, T], *, expected: tuple[type[BaseException], ...] = (BrokerClosed,)
    ) -> asyncio.Task[T]:
        """Run a coroutine beside the caller once; an error of it that is not `expected` is logged and counted."""
        task = asyncio.get_running_loop().create_task(work, name=f"godwit {name}")
        self._errands.add(task)
        task.add_done_callback(lambda done: self._ended(name, done, expected))
        return task

    def _ended(self, name: str, task: asyncio.Task[Any], expected: tuple[type[BaseException], ...]) -> None:
        self._errands.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, expected):
            failed(name, error, owner=self.owner)

    async def finish(self, seconds: float) -> None:
        """Wait a while for what runs once; it goes on if that was not long enough."""
        if self._errands:
            await asyncio.wait(self._errands, timeout=seconds)

    async def close(self) -> None:
        """Cancel what runs and wait until it has ended; an error on the way out is logged, never raised."""
        self.cancel()
        ending = {*self._tasks, *self._errands} - {asyncio.current_task()}
        if ending:
            await asyncio.wait(ending)

    def cancel(self) -> None:
        """Cancel what runs, without waiting."""
        for task in (*self._tasks, *self._errands):
            task.cancel()


def failed(name: str, error: BaseException, **fields: object) -> None:
    """Log and count the failure of something that runs in the background, such as a thread of its own."""
    _failures[name] += 1
    log.error("a background task failed", exc_info=error, task=name, error=error_text(error), **fields)


def failures() -> dict[str, int]:
    """Return how often background tasks of each name have failed since the process began."""
    return dict(_failures)


def report() -> list[BackgroundTask]:
    """Return every background task of this process that has not ended."""
    return [task for supervisor in tuple(_supervisors) for task in supervisor]


def is_cancelled() -> bool:
    """Say whether the running task itself was cancelled."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0
