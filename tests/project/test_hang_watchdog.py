"""A test that hangs cannot stop the whole run."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from tests.waiting import eventually

_HANGS = """
import asyncio, subprocess, sys
from tests import hang_watchdog
hang_watchdog.GRACE_SECONDS = 0
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
hang_watchdog.watch()
hang_watchdog.rest()
async def a_task_that_sleeps():
    hang_watchdog.begin("a test that sleeps", 1)
    await asyncio.sleep(600)
asyncio.run(a_task_that_sleeps())
"""
_HANGS_IN_A_TEST = """
import signal, time
from tests import hang_watchdog
hang_watchdog.GRACE_SECONDS = 0
def test_that_hangs(request):
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    hang_watchdog.begin(request.node.nodeid, 1)
    time.sleep(600)
"""
_DIES = """
import os, time, pytest
@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(3))
def test_that_dies_in_the_middle(number):
    time.sleep(0.5)
    if number == 1:
        os._exit(1)
@pytest.mark.parametrize("number", range(5))
def test_that_passes(number):
    pass
def test_that_dies_last():
    time.sleep(2)
    os._exit(1)
"""


async def test_a_process_that_hangs_says_where_and_takes_its_children_along() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _HANGS, stdout=PIPE, stderr=PIPE)
    said, stacks = await asyncio.wait_for(process.communicate(), 200)

    assert process.returncode == 1
    assert b"a test that sleeps" in stacks
    assert b"a_task_that_sleeps" in stacks
    assert b'File "<string>"' in stacks
    status = Path(f"/proc/{int(said)}/stat")
    await eventually(lambda: not status.exists() or " Z " in status.read_text())


@pytest.mark.parametrize("processes", [1, 3])
async def test_processes_that_die_cost_their_own_tests_only(tmp_path: Path, processes: int) -> None:
    (tmp_path / "test_deadly.py").write_text(_DIES)
    pytest_run = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.xdist_groups",
        "-n",
        str(processes),
        "--dist",
        "loadgroup",
        ".",
    )
    process = await asyncio.create_subprocess_exec(*pytest_run, cwd=tmp_path, env=_ours(), stdout=PIPE)
    said, _ = await asyncio.wait_for(process.communicate(), 200)

    assert process.returncode == 1
    assert b"2 failed, 7 passed" in said, said.decode()


async def test_a_test_that_hangs_says_so_past_what_pytest_catches(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(_HANGS_IN_A_TEST)
    (tmp_path / "conftest.py").write_text(
        "from tests import hang_watchdog\n\ndef pytest_configure():\n    hang_watchdog.watch()\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pytest", ".", cwd=tmp_path, env=_ours(), stdout=PIPE, stderr=PIPE
    )
    _, stacks = await asyncio.wait_for(process.communicate(), 200)
    assert process.returncode == 1
    assert b"test_hanging.py::test_that_hangs" in stacks
    assert b"in test_that_hangs" in stacks


def _ours() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path.cwd())}
