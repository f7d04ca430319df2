"""Bugs planted in the scheduler."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant


def seen_by(*names: str) -> tuple[str, ...]:
    """Name tests of the scheduler (`module::test`) as they run over the SQLite store."""
    return tuple(f"tests/scheduler/test_{name}[sqlite]" for name in names)


MUTANTS: Final = (
    Mutant(
        name="scheduler: a firing's id does not know the schedule's version",
        file="core/schedule/schedules.py",
        old='f"rule\\0{schedule_id}\\0{version}\\0{fire_ms}"',
        new='f"rule\\0{schedule_id}\\0{fire_ms}"',
        tests=seen_by("scheduler.py::test_what_is_paused_and_resumed_at_once_fires_as_if_nothing_had_been"),
    ),
    Mutant(
        name="scheduler: the deduplication window is thought to last for ever",
        file="runtime/scheduler/sender.py",
        old="        return self._clock.now_ms() < until_ms\n",
        new="        return True\n",
        tests=seen_by(
            "deaths.py::test_with_all_schedulers_down_for_two_windows_the_status_is_asked_before_publishing_again"
        ),
    ),
    Mutant(
        name="scheduler: what was cancelled while it was published stays with the broker",
        file="runtime/scheduler/sender.py",
        old="        if len(confirmed) < len(ids):\n",
        new="        if not ids:\n",
        tests=seen_by("deaths.py::test_a_publisher_that_finds_its_firing_cancelled_takes_it_back_itself"),
    ),
    Mutant(
        name="scheduler: claims that ran out are forgotten",
        file="runtime/scheduler/ticker.py",
        old="            swept += await self._sender.send_again(firings)\n",
        new="            break\n",
        tests=seen_by("deaths.py::test_what_a_dead_scheduler_had_claimed_is_sent_by_another"),
    ),
    Mutant(
        name="scheduler: a job in the repeated hour waits for its second passage",
        file="core/schedule/times.py",
        old="    if local < change.at + change.before:\n        return local - change.before\n",
        new="    if local < change.at + min(change.before, change.after):\n        return local - change.before\n",
        tests=("tests/core/test_schedule_dst.py::test_a_job_in_the_repeated_hour_runs_once",),
    ),
)
