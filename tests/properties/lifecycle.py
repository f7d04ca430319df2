"""Watches that every copy moves only as the lifecycle table allows."""

from __future__ import annotations

from typing import Any

from godwit.core.journal.lifecycle import ARRIVALS, LIFECYCLE, REPLAYED_COPY, CopyStep, Move, State
from godwit.core.journal.vocabulary import Event


class LifecycleWatch:
    """The state of every copy as the table knows it."""

    def __init__(self) -> None:
        self._states: dict[tuple[str, str, int], tuple[State, int]] = {}

    def see(self, row: dict[str, Any]) -> None:
        """Follow one journal row; an arrival has no state before it, and removals name no copy."""
        event, move = row["event"], LIFECYCLE.get(row["event"])
        if move is None or move.step in (CopyStep.PURGE, CopyStep.REMOVE):
            return
        if event is Event.REPLAYED:
            self._move(row, row["former_seq"], REPLAYED_COPY, row["at"])
        if event in ARRIVALS:
            assert (row["ready_at"] > row["at"]) == (event is Event.SCHEDULED)
        if move.step is CopyStep.ARRIVE:
            self._states[row["queue"], row["group"], row["publish_seq"]] = (move.target, row["ready_at"])
        else:
            self._move(row, row["publish_seq"], move, row.get("ready_at"))

    def _move(self, row: dict[str, Any], seq: int, move: Move, ready_at: int | None) -> None:
        address = (row["queue"], row["group"], seq)
        source, ready_from = self._states[address]
        if source in (State.SCHEDULED, State.DELAYED) and ready_from <= row["at"]:
            source = State.READY  # nothing is journaled when a delay is over
        assert source in move.sources, f"{address} was {source} at {move.step} ({row['event']})"
        self._states[address] = (move.state_after(row["at"], ready_at), row["at"] if ready_at is None else ready_at)
