"""The moment of a process: the same for all that it does, another one for other processes."""

from __future__ import annotations

import os

import pytest

from godwit.core.tick_phase import until_beat


@pytest.mark.parametrize("delay", [1.0, 5.0])
@pytest.mark.parametrize("late", [0.0, 0.001, 0.2, 0.4])
def test_what_is_done_in_turn_stays_at_its_moment_however_late_a_turn_was(delay: float, late: float) -> None:
    moment = 1_000 + until_beat(1_000, delay)
    again = moment + late + until_beat(moment + late, delay)
    assert again - moment == pytest.approx(delay)


def test_steps_of_one_process_meet() -> None:
    slow, quick = 1_000.3 + until_beat(1_000.3, 5), 1_000.9 + until_beat(1_000.9, 1)
    assert (slow - quick) % 1 == pytest.approx(0, abs=1e-6) or (slow - quick) % 1 == pytest.approx(1, abs=1e-6)


def test_a_wait_is_never_much_shorter_or_longer_than_asked_for() -> None:
    for tenth in range(100):
        assert 0.5 <= until_beat(tenth / 10, 1.0) <= 1.5
        assert 4.5 <= until_beat(tenth / 10, 5.0) <= 5.5


def test_processes_have_moments_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    for number in range(100, 110):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        found.add(round((1_000 + until_beat(1_000, 5)) % 1, 2))
    assert len(found) == 10
