"""Backups of a file at work: each is one moment of it, whole and consistent."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from godwit.brokers.sqlite.backup import backup
from tests.conformance.harness import Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.reconciliation import DATABASE, consistent, ids
from tests.faults.record import lines_of, read_all
from tests.waiting import eventually

BACKUPS = 20


async def test_a_backup_taken_at_any_moment_opens_and_is_consistent(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare(ORDERED)
    chaos = RandomKills(children=children, place=tmp_path, random=Random(5), count=200_000, workers=2)
    chaos.begin()
    known: list[set[str]] = []
    for number in range(BACKUPS):
        goal = chaos.written() + chaos.random.randrange(40_000)
        await eventually(lambda goal=goal: chaos.written() >= goal, what="progress")
        known.append(accepted(tmp_path))
        await asyncio.to_thread(backup, tmp_path / DATABASE, folder(tmp_path, number) / DATABASE)
    assert chaos.publishing(), "the load ended before the backups"
    children.kill_all()
    arrived: set[str] = set()
    for number in range(BACKUPS):
        rows = await consistent(tmp_path / f"backup{number}")
        assert arrived | known[number] <= set(ids(rows, "enqueued")), "a backup lacks what was there before it began"
        arrived = set(ids(rows, "enqueued"))
    assert len(arrived) > len(known[0])


def accepted(place: Path) -> set[str]:
    return {line[1] for line in lines_of(read_all(place, "publisher"), "accepted")}


def folder(place: Path, number: int) -> Path:
    target = place / f"backup{number}"
    target.mkdir()
    return target
