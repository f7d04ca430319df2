"""The folder of one run: holds everything temporary, removed however the run ends."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

PREFIX: Final = "godwit-spark-"
LOCK: Final = "in-use"


@contextmanager
def run_folder(parent: Path | None = None) -> Iterator[Path]:
    """Make a folder that is removed with the block; folders of killed runs are removed first."""
    root = parent if parent is not None else Path(tempfile.gettempdir())
    sweep(root)
    folder, lock = _locked(root)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _locked(root: Path) -> tuple[Path, int]:
    """Return a new folder and its lock; retry when a concurrent sweep removed the folder before it was locked."""
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
        lock = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink:
            return folder, lock
        os.close(lock)


def sweep(root: Path) -> int:
    """Remove folders whose run is over; return how many. A run's lock is released when its process ends."""
    removed = 0
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            lock = os.open(folder / LOCK, os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
                removed += 1
            finally:
                os.close(lock)
    return removed
