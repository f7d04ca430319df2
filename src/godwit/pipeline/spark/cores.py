"""The number of processors this process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Return the number of processors: those the process is restricted to, where the system can tell."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
