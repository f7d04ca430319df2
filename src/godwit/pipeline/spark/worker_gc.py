"""What a Python worker of Spark does once in its life."""

from __future__ import annotations

import gc
from functools import cache
from typing import Final

_THRESHOLD: Final = 50_000


@cache
def reduce_collections() -> None:
    """Leave what is there now out of every collection of garbage to come.

    Spark has a worker collect garbage after each task, and what pandas, Arrow and Spark itself have put there by then
    takes 30 ms to look through. None of it is ever garbage. Because of that same collection there is no need to look
    for garbage as often as Python does while a task makes rows by the thousand.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_THRESHOLD)
