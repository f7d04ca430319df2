"""The thread that cleans up while no call comes."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

from godwit.core.background import failed


class Cleaner:
    """Calls `tidy` every `interval_seconds` from one daemon thread, until it returns False.

    It holds no reference to the owner of `tidy`: an unused queue goes away, and the thread with it.
    The owner calls `start`, and `retire` inside `tidy`, under one lock, so that a thread about to end is never taken
    for one that goes on.
    """

    def __init__(self, tidy: Callable[[], bool], *, interval_seconds: float) -> None:
        self._tidy = weakref.WeakMethod(tidy)
        self._interval_seconds = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether there is a thread."""
        return self._thread is not None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._stop = threading.Event()
            self._thread = threading.Thread(
                target=_run,
                args=(self._tidy, self._stop, self._interval_seconds),
                name="godwit-messagequeue-janitor",
                daemon=True,
            )
            self._thread.start()

    def retire(self) -> None:
        """End the thread at its next look."""
        self._stop.set()
        self._thread = None


def _run(tidy: weakref.WeakMethod[Callable[[], bool]], stop: threading.Event, interval_seconds: float) -> None:
    while not stop.wait(interval_seconds):
        call = tidy()
        try:
            if call is None or not call():
                return
        except BaseException as error:  # noqa: BLE001 - what is due later must not stay for ever
            failed("cleaner", error)
        del call  # it keeps the queue alive while we wait
