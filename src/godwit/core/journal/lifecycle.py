"""The one lifecycle of a copy of a message in a group: which event moves it from which states to which.

Projection, recorder, audit and the property model read the moves from here. A copy that has not arrived is in no state.
Time moves a copy without an event: a scheduled or delayed one is ready once it is due.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from godwit.core.journal.vocabulary import Event


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


class Phase(StrEnum):
    """What a reader of the journal knows of a copy without a clock."""

    UNBORN = "unborn"
    WAITING = "waiting"
    LEASED = "leased"
    DEAD = "dead"
    ENDED = "ended"


PHASE_OF: Final = {
    State.SCHEDULED: Phase.WAITING,
    State.READY: Phase.WAITING,
    State.LEASED: Phase.LEASED,
    State.DELAYED: Phase.WAITING,
    State.DONE: Phase.ENDED,
    State.DEAD: Phase.DEAD,
    State.EXPIRED: Phase.DEAD,
    State.CANCELLED: Phase.ENDED,
}


class CopyStep(StrEnum):
    """What an event does to a copy. `replay` is the end of the copy whose message was replayed as another one."""

    ARRIVE = "arrive"
    DELIVER = "deliver"
    RENEW = "renew"
    RETURN = "return"
    DIE = "die"
    ACK = "ack"
    CANCEL = "cancel"
    DISCARD = "discard"
    PURGE = "purge"
    REMOVE = "remove"
    REPLAY = "replay"


class Move(NamedTuple):
    """A step: the states it may begin in, and the state it leads to (`later` while its `ready_at` lies ahead)."""

    step: CopyStep
    sources: frozenset[State]
    target: State
    later: State | None = None

    @property
    def phase(self) -> Phase:
        """The phase it leads to."""
        return PHASE_OF[self.target]

    def state_after(self, at: int, ready_at: int | None) -> State:
        """Return the state after the step was taken at an instant."""
        return self.later if self.later is not None and ready_at is not None and ready_at > at else self.target


_NOWHERE: Final = frozenset[State]()
_WAITING: Final = frozenset(state for state, phase in PHASE_OF.items() if phase is Phase.WAITING)
_LEASED: Final = frozenset({State.LEASED})
_DEAD: Final = frozenset({State.DEAD, State.EXPIRED})
_RETURN: Final = Move(CopyStep.RETURN, _LEASED, State.READY, State.DELAYED)
_RENEW: Final = Move(CopyStep.RENEW, _LEASED, State.LEASED)
_REMOVE: Final = Move(CopyStep.REMOVE, _WAITING | _LEASED | _DEAD, State.CANCELLED)

LIFECYCLE: Final[dict[Event, Move]] = {
    Event.ENQUEUED: Move(CopyStep.ARRIVE, _NOWHERE, State.READY),
    Event.SCHEDULED: Move(CopyStep.ARRIVE, _NOWHERE, State.SCHEDULED),
    Event.REPLAYED: Move(CopyStep.ARRIVE, _NOWHERE, State.READY),
    Event.DELIVERED: Move(CopyStep.DELIVER, frozenset({State.READY}), State.LEASED),
    Event.EXTENDED: _RENEW,
    Event.LEASE_MOVED: _RENEW,
    Event.NACKED: _RETURN,
    Event.POSTPONED: _RETURN,
    Event.LEASE_EXPIRED: _RETURN,
    Event.HANDED_BACK: _RETURN,
    Event.DEAD_LETTERED: Move(CopyStep.DIE, _WAITING | _LEASED, State.DEAD),
    Event.MESSAGE_EXPIRED: Move(CopyStep.DIE, _WAITING, State.EXPIRED),
    Event.ACKED: Move(CopyStep.ACK, _LEASED, State.DONE),
    Event.CANCELLED: Move(CopyStep.CANCEL, _WAITING, State.CANCELLED),
    Event.DISCARDED: Move(CopyStep.DISCARD, _DEAD, State.CANCELLED),
    Event.PURGED: Move(CopyStep.PURGE, _WAITING, State.CANCELLED),
    Event.GROUP_REMOVED: _REMOVE,
    Event.QUEUE_REMOVED: _REMOVE,
}
"""Events that are not here move no copy. Waiting copies die when no worker could ever read them."""
REPLAYED_COPY: Final = Move(CopyStep.REPLAY, _DEAD, State.CANCELLED)
"""What `replayed` does to the copy named by `former_seq`: it ends, the message goes on as the copy that arrives."""


def events_of(*steps: CopyStep) -> tuple[Event, ...]:
    """Return the events that are one of these steps."""
    return tuple(event for event, move in LIFECYCLE.items() if move.step in steps)


ARRIVALS: Final = (Event.ENQUEUED, Event.SCHEDULED)
"""A published message came to a group."""
BIRTHS: Final = events_of(CopyStep.ARRIVE)
"""A copy began: an arrival or a replay."""
ACCEPTANCES: Final = (*ARRIVALS, Event.DUPLICATE)
"""A publish was accepted, now or before: no need to publish again."""
PUBLISH_EVENTS: Final = (*ACCEPTANCES, Event.DROPPED)
"""All that a publish can lead to."""
RETURNS: Final = events_of(CopyStep.RETURN)
"""A delivery ended and the copy waits again."""
DEATHS: Final = events_of(CopyStep.DIE)
DELIVERY_ENDS: Final = (*RETURNS, *DEATHS, *events_of(CopyStep.ACK))
"""A delivery came to an end, or a copy that waited died."""
REMOVALS: Final = events_of(CopyStep.PURGE, CopyStep.REMOVE)
"""Many copies ended at once, which the row does not name."""
