"""The live state of queues as their journal tells it: a pure fold over rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

import msgspec

from godwit.core.journal.lifecycle import LIFECYCLE, PHASE_OF, CopyStep, Phase
from godwit.core.journal.shards import numbers_of
from godwit.core.journal.vocabulary import Event

Address = tuple[str, str, int]
"""Queue, group and publish_seq: one copy of a message."""


class CopyState(msgspec.Struct, frozen=True, kw_only=True):
    """An open or dead copy. `state` is a phase: waiting (ready from `ready_at` on), leased or dead."""

    queue: str
    group: str
    publish_seq: int
    message_id: str
    state: str
    ready_at: int | None = None
    delivery_id: str | None = None
    lease_until: int | None = None
    attempt: int = 0
    failures: int = 0
    crashes: int = 0

    @property
    def address(self) -> Address:
        """Where it stands."""
        return (self.queue, self.group, self.publish_seq)


class Projection:
    """Open and dead copies by address, after every row applied so far."""

    def __init__(self, start: Iterable[CopyState] = ()) -> None:
        self.copies: dict[Address, CopyState] = {copy.address: copy for copy in start}

    def apply(self, row: dict[str, Any]) -> None:
        """Carry out one transition."""
        move = LIFECYCLE.get(row["event"])
        if move is None:
            return
        match move.step:
            case CopyStep.ARRIVE:
                if row["event"] is Event.REPLAYED:
                    self.copies.pop((row["queue"], row["group"], row["former_seq"]), None)
                self._arrive(row, move.phase)
            case CopyStep.DELIVER:
                self._attempt(row, state=move.phase, delivery_id=row["delivery_id"], lease_until=row["lease_until"])
            case CopyStep.RENEW:
                self._change(row, lease_until=row["lease_until"])
            case CopyStep.RETURN:
                self._attempt(row, state=move.phase, delivery_id=None, lease_until=None, ready_at=row["ready_at"])
            case CopyStep.DIE:
                self._attempt(row, state=move.phase, delivery_id=None, lease_until=None)
            case CopyStep.ACK | CopyStep.CANCEL | CopyStep.DISCARD | CopyStep.REPLAY:
                self.copies.pop(_address(row), None)
            case CopyStep.PURGE | CopyStep.REMOVE:
                self._remove(row, {PHASE_OF[state] for state in move.sources})
            case _:
                assert_never(move.step)

    def _arrive(self, row: dict[str, Any], phase: Phase) -> None:
        copy = CopyState(
            queue=row["queue"],
            group=row["group"],
            publish_seq=row["publish_seq"],
            message_id=row["message_id"],
            state=phase,
            ready_at=row["ready_at"],
        )
        self.copies[copy.address] = copy

    def _attempt(self, row: dict[str, Any], **changes: Any) -> None:
        self._change(row, attempt=row["attempt"], failures=row["failures"], crashes=row["crashes"], **changes)

    def _change(self, row: dict[str, Any], **changes: Any) -> None:
        address = _address(row)
        self.copies[address] = msgspec.structs.replace(self.copies[address], **changes)

    def _remove(self, row: dict[str, Any], phases: set[Phase]) -> None:
        queue, group, numbers = row["queue"], row["group"], numbers_of(row.get("shard", ""))
        gone = [
            address
            for address, copy in self.copies.items()
            if address[0] == queue
            and (group is None or address[1] == group)
            and copy.state in phases
            and address[2] in numbers
        ]
        for address in gone:
            del self.copies[address]


def _address(row: dict[str, Any]) -> Address:
    return (row["queue"], row["group"], row["publish_seq"])
