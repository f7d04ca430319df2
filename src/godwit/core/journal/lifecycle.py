"""The one lifecycle of a message in a group, as a table."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class State(StrEnum):
    """Where a message stands in one group."""

    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DELAYED = "delayed"
    DONE = "done"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


MOVES: Final[dict[State, frozenset[State]]] = {
    State.SCHEDULED: frozenset({State.READY, State.EXPIRED, State.CANCELLED}),
    State.READY: frozenset({State.LEASED, State.EXPIRED, State.CANCELLED}),
    State.LEASED: frozenset({State.DONE, State.DELAYED, State.READY, State.DEAD}),
    State.DELAYED: frozenset({State.READY, State.EXPIRED, State.CANCELLED}),
    State.DONE: frozenset(),
    State.DEAD: frozenset({State.READY, State.CANCELLED}),
    State.EXPIRED: frozenset({State.READY, State.CANCELLED}),
    State.CANCELLED: frozenset(),
}

OPEN: Final = frozenset({State.SCHEDULED, State.READY, State.LEASED, State.DELAYED})
"""States in which a message still waits for its end."""


def may_move(source: State, target: State) -> bool:
    """Say whether the lifecycle knows this step."""
    return target in MOVES[source]
