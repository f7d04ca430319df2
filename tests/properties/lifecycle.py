"""Watches that every copy moves only as the lifecycle table allows."""

from __future__ import annotations

from typing import Any

from godwit.core.journal.lifecycle import State, may_move
from godwit.core.journal.vocabulary import Event

_TARGETS = {
    Event.DELIVERED: State.LEASED,
    Event.ACKED: State.DONE,
    Event.DEAD_LETTERED: State.DEAD,
    Event.MESSAGE_EXPIRED: State.EXPIRED,
    Event.CANCELLED: State.CANCELLED,
    Event.DISCARDED: State.CANCELLED,
}
_RETURNS = (Event.NACKED, Event.POSTPONED, Event.LEASE_EXPIRED, Event.HANDED_BACK)


class LifecycleWatch:
    """The state of every copy as the table knows it."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str, int], tuple[State, int]] = {}

    def see(self, row: dict[str, Any]) -> None:
        """Follow one journal row; an arrival has no state before it."""
        event, at = row["event"], row["at"]
        if event in (Event.ENQUEUED, Event.SCHEDULED, Event.REPLAYED):
            if event is Event.REPLAYED:
                self._move(row, row["former_seq"], State.READY, at)
            state = State.SCHEDULED if event is Event.SCHEDULED else State.READY
            assert (row["ready_at"] > at) == (event is Event.SCHEDULED)
            self._states[row["queue"], row["group"], row["publish_seq"]] = (state, row["ready_at"])
        elif event in _RETURNS:
            state = State.DELAYED if row["ready_at"] > at else State.READY
            self._move(row, row["publish_seq"], state, row["ready_at"])
        elif event in _TARGETS:
            self._move(row, row["publish_seq"], _TARGETS[event], at)

    def _move(self, row: dict[str, Any], seq: int, target: State, ready_at: int) -> None:
        address = (row["queue"], row["group"], seq)
        source, ready_from = self._states[address]
        if source in (State.SCHEDULED, State.DELAYED) and ready_from <= row["at"]:
            source = State.READY  # nothing is journaled when a delay is over
        assert may_move(source, target), f"{address} went from {source} to {target}"
        self._states[address] = (target, ready_at)
