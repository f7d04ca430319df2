"""A test that hangs cannot stop the whole run."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

from tests.waiting import eventually

_HANGS = """
import subprocess, sys, time
from tests import stuck
stuck.LONGEST_TEST_SECONDS = stuck.GRACE_SECONDS = 0
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
stuck.begin("a test that sleeps")
stuck.watch()
time.sleep(600)
"""


async def test_a_process_that_hangs_says_where_and_takes_its_children_along() -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", _HANGS, stdout=PIPE, stderr=PIPE)
    said, stacks = await asyncio.wait_for(process.communicate(), 60)

    assert process.returncode == 1
    assert b"a test that sleeps" in stacks
    assert b'File "<string>"' in stacks
    status = Path(f"/proc/{int(said)}/stat")
    await eventually(lambda: not status.exists() or " Z " in status.read_text())
