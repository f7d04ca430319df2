from __future__ import annotations

import pytest

from godwit.core.journal.lifecycle import MOVES, OPEN, State, may_move
from godwit.core.queues import LANE_OF_PRIORITY, Lane


def test_every_state_has_its_moves() -> None:
    assert set(MOVES) == set(State)


def test_done_and_cancelled_are_the_end() -> None:
    assert {state for state, targets in MOVES.items() if not targets} == {State.DONE, State.CANCELLED}


def test_every_open_state_leads_to_an_end() -> None:
    reached = {State.DONE, State.DEAD, State.EXPIRED, State.CANCELLED}
    for _ in State:
        reached |= {state for state, targets in MOVES.items() if targets & reached}
    assert reached >= OPEN


def test_every_state_but_the_first_can_be_reached() -> None:
    assert {target for targets in MOVES.values() for target in targets} | {State.SCHEDULED} == set(State)


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        (State.READY, State.LEASED, True),
        (State.SCHEDULED, State.LEASED, False),
        (State.LEASED, State.EXPIRED, False),
        (State.LEASED, State.CANCELLED, False),
        (State.DEAD, State.READY, True),
        (State.DONE, State.READY, False),
    ],
)
def test_a_copy_moves_only_as_the_table_says(source: State, target: State, allowed: bool) -> None:
    assert may_move(source, target) is allowed


def test_every_priority_has_a_lane_and_lanes_follow_priorities() -> None:
    assert len(LANE_OF_PRIORITY) == 101
    assert sorted(LANE_OF_PRIORITY) == list(LANE_OF_PRIORITY)
    assert [LANE_OF_PRIORITY.index(lane) for lane in Lane] == [0, 21, 61, 81]
