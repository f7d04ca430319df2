"""Copying a live file: SQLite's backup reads one moment of it, whatever is written meanwhile."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path

from godwit.brokers.sqlite.layout.file import open_reader, translated
from godwit.core.errors import BrokerUnavailable, InvalidSetting
from godwit.core.fault_points import fault_point
from godwit.sqlite_writer.connection import check_header


def backup(source: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Write a consistent copy of `source` to `target`, which appears whole or not at all."""
    origin, goal = Path(source).absolute(), Path(target).absolute()
    if not origin.exists():
        raise BrokerUnavailable(f"sqlite:///{origin}", "there is no such file", "Check the path.")
    if goal.exists() and origin.samefile(goal):
        raise InvalidSetting("target", str(goal), "another file than the source")
    check_header(origin)
    unfinished = goal.with_name(f"{goal.name}.{os.getpid()}.unfinished")
    try:
        _copy(origin, unfinished)
        fault_point("sqlite.before_backup_appears")
        unfinished.replace(goal)
        _sync(goal.parent)
    except sqlite3.Error as error:
        raise translated(error, goal, "the backup") from error
    except OSError as error:
        remedy = "Choose a target in a directory you can write to."
        raise BrokerUnavailable(f"sqlite:///{goal}", error.strerror or str(error), remedy) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _copy(origin: Path, unfinished: Path) -> None:
    unfinished.unlink(missing_ok=True)
    reader = open_reader(origin)
    try:
        copy = sqlite3.connect(unfinished, isolation_level=None)
        try:
            # All pages in one step: in several, every write of another process would start it anew.
            reader.backup(copy, pages=-1)
            copy.execute("PRAGMA journal_mode = DELETE")  # a single file, without a log beside it
        finally:
            copy.close()
    finally:
        reader.close()
    _sync(unfinished)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
