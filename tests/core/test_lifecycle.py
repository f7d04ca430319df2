from __future__ import annotations

import pytest

from godwit.core.journal.lifecycle import (
    ARRIVALS,
    LIFECYCLE,
    PHASE_OF,
    REMOVALS,
    CopyStep,
    Move,
    Phase,
    State,
    events_of,
)
from godwit.core.journal.vocabulary import HOLDS, Event
from godwit.core.messages.message import Priority
from godwit.core.queues import LANE_OF_PRIORITY, Lane

ENDS = {State.DONE, State.CANCELLED}


def targets(move: Move) -> set[State]:
    return {move.target} | ({move.later} if move.later is not None else set())


def test_every_state_has_its_phase() -> None:
    assert set(PHASE_OF) == set(State)
    assert {state for state, phase in PHASE_OF.items() if phase is Phase.ENDED} == ENDS


def test_no_event_leads_out_of_an_end() -> None:
    assert not any(move.sources & ENDS for move in LIFECYCLE.values())


@pytest.mark.parametrize("state", sorted(set(State) - ENDS))
def test_every_other_state_can_be_reached_and_left(state: State) -> None:
    assert any(state in targets(move) for move in LIFECYCLE.values())
    assert any(state in move.sources for move in LIFECYCLE.values() if move.step is not CopyStep.REMOVE)


def test_an_event_that_moves_no_copy_names_none_or_one_that_did_not_come_in() -> None:
    assert set(Event) - set(LIFECYCLE) == {
        Event.QUEUE_CREATED, Event.GROUP_CREATED, Event.ACK_REFUSED, Event.DROPPED, Event.DUPLICATE,
        *HOLDS,
    }  # fmt: skip


def test_a_replay_begins_a_copy_and_is_no_arrival() -> None:
    assert set(events_of(CopyStep.ARRIVE)) == {*ARRIVALS, Event.REPLAYED}
    assert set(REMOVALS) == {Event.PURGED, Event.GROUP_REMOVED, Event.QUEUE_REMOVED}


@pytest.mark.parametrize(
    ("event", "source", "allowed"),
    [
        (Event.DELIVERED, State.READY, True),
        (Event.DELIVERED, State.SCHEDULED, False),
        (Event.MESSAGE_EXPIRED, State.LEASED, False),
        (Event.CANCELLED, State.LEASED, False),
        (Event.PURGED, State.DEAD, False),
        (Event.ACKED, State.DONE, False),
        (Event.DISCARDED, State.EXPIRED, True),
    ],
)
def test_an_event_moves_a_copy_only_as_the_table_says(event: Event, source: State, allowed: bool) -> None:
    assert (source in LIFECYCLE[event].sources) is allowed


@pytest.mark.parametrize(("ready_at", "state"), [(5, State.READY), (6, State.DELAYED), (None, State.READY)])
def test_a_returned_copy_is_delayed_while_it_is_not_due(ready_at: int | None, state: State) -> None:
    assert LIFECYCLE[Event.NACKED].state_after(5, ready_at) is state


def test_each_named_priority_has_the_lane_of_its_name() -> None:
    assert [(priority.name, LANE_OF_PRIORITY[priority].name) for priority in Priority] == [
        (name, name) for name in ("LOW", "MEDIUM", "HIGH", "CRITICAL")
    ]


def test_every_priority_has_a_lane_and_lanes_follow_priorities() -> None:
    assert len(LANE_OF_PRIORITY) == 101
    assert sorted(LANE_OF_PRIORITY) == list(LANE_OF_PRIORITY)
    assert [LANE_OF_PRIORITY.index(lane) for lane in Lane] == [0, 21, 61, 81]
