"""A crash at each named point of the SQLite broker: the step it hit is there as a whole or not at all."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from godwit import sqlite_writer
from godwit.brokers import sqlite
from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.fault_points import VARIABLE
from tests.faults.reconciliation import DATABASE, consistent
from tests.faults.record import read
from tests.faults.scenario import BACKUP_FILE, STEPS_FILE, Life, state
from tests.project.specification import ROOT

SOURCES = [Path(next(iter(package.__path__))) for package in (sqlite, sqlite_writer)]
PASSAGES = {
    "sqlite.before_commit": (1, 2, 4, 5, 9, 12, 13, 14, 19),
    "sqlite.after_commit": (1, 2, 4, 5, 9, 12, 13, 14, 19),
}
"""Points that every transaction passes are tried in several of them; the others at their first passage."""
UNREACHED = {"sqlite.mend"}
"""Steps that this life does not take: counters are mended only where something damaged them."""


def points() -> set[str]:
    """Return the names of all fault points in the source, those made from the names of calls included."""
    text = "\n".join(path.read_text(encoding="utf-8") for source in SOURCES for path in source.rglob("*.py"))
    found = set(re.findall(r'fault_point\("([\w.]+)"\)', text))
    writers = set(re.findall(r'fault_point\(f"\{self\._owner\}\.(\w+)"\)', text))
    made = re.findall(r'fault_point\(f"\{self\._owner\}\.\{([^"]*)\}"\)', text)
    assert made == ["call.name"], "a new kind of fault point: let this test find its names"
    assert len(found) + len(writers) + len(made) == len(re.findall(r"\bfault_point\(", text))
    calls = set(re.findall(r'\b(?:write|submit)\(\s*"(\w+)"', text))
    return (found | {f"sqlite.{name}" for name in writers | calls}) - UNREACHED


CRASHES = [f"{point}:{passage}" for point in sorted(points()) for passage in PASSAGES.get(point, (1,))]


async def states_of_a_whole_life() -> list[list[dict[str, Any]]]:
    """Return the states the reference broker goes through: for each step those inside it and the one after it."""
    states: list[list[dict[str, Any]]] = []
    async with MemoryBroker() as broker:

        async def changed() -> None:
            states[-1].append(await state(broker))

        for step in Life(broker, None, changed).steps():
            states.append([])
            await step()
            await changed()
    return states


@pytest.mark.parametrize("crash", CRASHES)
async def test_a_crash_leaves_the_step_it_hit_whole_or_absent(crash: str, tmp_path: Path) -> None:
    died = run_scenario(tmp_path, crash)
    assert died.returncode == -signal.SIGKILL, f"{crash} was not reached: {died.stderr}"
    finished = len(read(tmp_path / STEPS_FILE))
    states = await states_of_a_whole_life()
    before = states[finished - 1][-1] if finished else {"events": {}, "stats": [], "shared": None}
    async with SqliteBroker(tmp_path / DATABASE) as broker:
        found = await state(broker)
    during = states[finished] if finished < len(states) else []  # the log may be moved after the last step
    assert found in [before, *during]
    if finished:
        await consistent(tmp_path)
    if has_backup(tmp_path):
        (tmp_path / "restored").mkdir()
        (tmp_path / BACKUP_FILE).rename(tmp_path / "restored" / DATABASE)
        await consistent(tmp_path / "restored")


def has_backup(place: Path) -> bool:
    return (place / BACKUP_FILE).exists()


async def test_a_life_without_a_crash_ends_as_the_reference_does(tmp_path: Path) -> None:
    ran = run_scenario(tmp_path, "")
    assert ran.returncode == 0, ran.stderr
    async with SqliteBroker(tmp_path / DATABASE) as broker:
        assert await state(broker) == (await states_of_a_whole_life())[-1][-1]


def run_scenario(place: Path, crash: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.faults.scenario", str(place)],
        cwd=ROOT,
        env=os.environ | {VARIABLE: crash},
        capture_output=True,
        text=True,
        check=False,
    )
