"""Statements that take many rows of values at once.

The interpreter's lock is given away and asked for again with each statement, and a thread that computes gives it
back after five milliseconds. A statement a row would make that the price of a row, with the file locked.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

from godwit.store.sql_files import statement

PACKAGE: Final = "godwit.store.sqlite"
AT_ONCE: Final = 32
_ROW: Final = re.compile(r"\((?:\?, )*\?\)")


@lru_cache(maxsize=128)
def wide(name: str, count: int) -> str:
    """Return the statement in `sql/<name>.sql` with its row of values repeated."""
    return _ROW.sub(lambda found: ", ".join([found[0]] * count), statement(PACKAGE, name), count=1)


def insert(
    connection: sqlite3.Connection,
    name: str,
    rows: Sequence[tuple[Any, ...]],
    *after: Any,
    at_once: int = AT_ONCE,
) -> int:
    """Carry out a statement for many rows; `after` are its values that follow them. Return how many it changed.

    What is left after the last `at_once` of them goes in powers of two, so that a handful of prepared statements serves
    every number of rows.
    """
    changed, start = 0, 0
    while start < len(rows):
        left = len(rows) - start
        count = at_once if left >= at_once else 1 << (left.bit_length() - 1)
        values = [*chain.from_iterable(rows[start : start + count]), *after]
        changed += connection.execute(wide(name, count), values).rowcount
        start += count
    return changed
