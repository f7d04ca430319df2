"""Renewing leases from a thread of its own, so that a busy event loop does not lose them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from godwit.core import background
from godwit.core.errors import GodwitError
from godwit.core.logs import RepeatedTrouble, get_logger
from godwit.core.names import AckId
from godwit.runtime.delivery.in_flight import InFlight

log = get_logger(__name__)

ExtendNow = Callable[[Sequence[AckId], timedelta], list[AckId]]


class Renewer:
    """Extends every held lease at a third of the shortest lease's length."""

    def __init__(self, held: InFlight, extend_now: ExtendNow, *, every: timedelta) -> None:
        self._held = held
        self._extend_now = extend_now
        self._every = every.total_seconds()
        self._trouble = RepeatedTrouble(log, "leases not renewed")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="godwit renewer", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for the renewal under way."""
        self._stop.set()
        self._held.something.set()
        if self._thread.ident is not None:
            self._thread.join()

    def tick(self) -> int:
        """Renew once; return how many leases were extended."""
        renewed, failed = 0, False
        for lease, ack_ids in self._held.to_renew(time.monotonic()).items():
            try:
                refused = self._extend_now(ack_ids, lease)
            except GodwitError as error:
                self._trouble.came(error, count=len(ack_ids))
                failed = True
                continue
            renewed += len(ack_ids) - len(refused)
            if refused:
                # Most were settled between the listing and the call; a lost one will see its settlement refused.
                log.debug("leases gone before renewal", count=len(refused))
        if not failed:
            self._trouble.over("leases are renewed again")
        return renewed

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self.tick()
            except BaseException as error:  # noqa: BLE001 - without this thread every lease would be lost
                background.failed("renewer", error)
            if not self._held:
                self._sleep_until_something_is_held()

    def _sleep_until_something_is_held(self) -> None:
        something = self._held.something
        something.clear()
        if not self._held and not self._stop.is_set():  # else it came, or the end did, between the two
            something.wait()
