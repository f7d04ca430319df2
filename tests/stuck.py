"""The last resort against a test that hangs where no signal reaches it: its process says where it stands and ends.

pytest-timeout interrupts a test by a signal, which a call that catches everything, or a native wait, can swallow. This
looks from a thread. Under xdist the test then counts as failed and another process goes on with the rest.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from pathlib import Path

LONGEST_TEST_SECONDS = max(600, int(os.environ.get("GODWIT_SPARK_TIMEOUT", "0")))
"""No test may ask pytest-timeout for more; only those of the long run on Spark do."""
GRACE_SECONDS = 45

_doing = "nothing"
_since = time.monotonic()


def begin(what: str) -> None:
    """Note what this process does from now on."""
    global _doing, _since
    _doing, _since = what, time.monotonic()


def watch() -> None:
    """Start the thread that looks."""
    threading.Thread(target=_look, name="stuck", daemon=True).start()


def _look() -> None:
    while time.monotonic() - _since < LONGEST_TEST_SECONDS + GRACE_SECONDS:
        time.sleep(5)
    print(f"\nstuck for {time.monotonic() - _since:.0f} s: {_doing}", file=sys.__stderr__, flush=True)
    faulthandler.dump_traceback(file=2, all_threads=True)
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
