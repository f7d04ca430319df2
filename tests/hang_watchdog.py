"""The last resort against a test that hangs where no signal reaches it: its process says where it stands and ends.

pytest-timeout interrupts a test by a signal, which a call that catches everything, or a native wait, can swallow; and a
task that ignores being cancelled then holds up the end of its event loop. This looks from a thread. Under xdist the
test counts as failed and another process goes on with the rest (`tests/xdist_groups.py`).
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TextIO

LONGEST_TEST_SECONDS = max(600, int(os.environ.get("GODWIT_SPARK_TIMEOUT", "0")))
"""No test may ask pytest-timeout for more; only those of the long run on Spark do."""
GRACE_SECONDS = 45

_doing = "nothing"
_since = time.monotonic()
_until = float("inf")


def begin(what: str, seconds: float = LONGEST_TEST_SECONDS) -> None:
    """Note what this process does from now on, and how long that may take."""
    global _doing, _since, _until  # noqa: PLW0603 -- there is one process
    _doing, _since = what, time.monotonic()
    _until = _since + seconds + GRACE_SECONDS


def rest() -> None:
    """Note that this process waits for work, which may take any time."""
    begin("nothing", float("inf"))


def watch() -> None:
    """Start the thread that looks; called before pytest catches what is written."""
    words = open(os.dup(2), "w")  # noqa: PTH123, SIM115 -- as long as the process
    threading.Thread(target=_look, args=(words,), name="stuck", daemon=True).start()


def _look(words: TextIO) -> None:
    while time.monotonic() < _until:
        time.sleep(min(5, max(0.1, _until - time.monotonic())))
    print(f"\nstuck for {time.monotonic() - _since:.0f} s: {_doing}", file=words, flush=True)
    faulthandler.dump_traceback(file=words, all_threads=True)
    with suppress(Exception):  # seen from another thread, tasks may change meanwhile
        for task in list(asyncio.tasks._all_tasks):  # type: ignore[attr-defined]  # those of every loop
            if not task.done():
                task.print_stack(file=words)
    words.flush()
    for pid in _descendants(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    os._exit(1)


def _descendants(pid: int) -> list[int]:
    """Return the processes below this one, those deepest last."""
    try:
        lists = [(task / "children").read_text() for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
    children = [int(word) for text in lists for word in text.split()]
    return children + [below for child in children for below in _descendants(child)]
