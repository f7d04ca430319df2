"""kill -9 of `godwit worker` processes under load, judged by what handlers wrote to disk outside Godwit."""

from __future__ import annotations

import os
import signal
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

from godwit.cli.demo.journal_tally import JournalTally
from tests.runtime.worker_processes import STARTED, SampleWorkers
from tests.waiting import eventually

MESSAGES = 1_500
KILLS = 6
LEASE = "10"
"""Seconds. A victim that is stopped while it has the file locked keeps the others from renewing until it is killed, and
a loaded machine takes more than a second to look up what it holds: leases of the others must last longer than that."""


def children(pid: int) -> list[int]:
    """Return the processes that a supervisor runs."""
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


async def held_by(sample: SampleWorkers, tally: JournalTally, pid: int) -> set[str]:
    """Return the messages a process holds by the journal."""
    await tally.follow(sample.broker.journal)
    return {name for holder, name in tally.leases.values() if f"-{pid}-" in holder}


async def test_kills_of_supervised_workers_lose_nothing_and_repeat_only_what_the_victims_held(
    sample: SampleWorkers,
) -> None:
    random, tally, held = Random(11), JournalTally(), list[str]()
    await sample.publish(*["work"] * MESSAGES)
    with sample.worker("--processes", "3", seconds=0.01, SAMPLE_LEASE=LEASE) as supervisor:
        for kill in range(KILLS):
            goal = (kill + 1) * MESSAGES // (KILLS + 3)
            await eventually(lambda goal=goal: len(sample.recorded("end")) >= goal, within=STARTED)
            victim = random.choice(children(supervisor.pid))
            os.kill(victim, signal.SIGSTOP)  # so that what it holds can be looked up while it cannot let go
            held += await held_by(sample, tally, victim)
            os.kill(victim, signal.SIGKILL)
        await eventually(sample.is_empty, within=timedelta(seconds=100))
    assert held, "the killed workers held nothing: the test showed nothing"
    ends = Counter(sample.recorded("end"))
    assert set(ends) == {f"o{number}" for number in range(MESSAGES)}, "nothing is lost"
    repeated = {name: count - 1 for name, count in ends.items() if count > 1}
    assert repeated.keys() <= set(held), "only what a victim held is repeated"
    assert sum(repeated.values()) <= len(held)
    assert (await sample.group()).dead == 0
