"""Workers as processes, for variables that `godwit worker` itself reads."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

from godwit.manager import MessageQueueManager
from tests.config.effects.running_systems import World
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


async def names_of_workers(world: World) -> set[str]:
    """Run a worker in the present environment; return the names it goes by."""
    url = f"sqlite:///{world.folder}/godwit.db"
    world.set(GODWIT_URL=url, SAMPLE_RECORD=str(world.folder / "record"))
    found: set[str] = set()
    process = _started()
    try:
        async with MessageQueueManager.from_url(url) as mq:

            async def heard() -> bool:
                found.update(one.id for one in await mq.instances())
                return bool(found)

            await eventually(heard, within=timedelta(seconds=60))
    finally:
        process.terminate()
        process.wait(120)
    return found


def _started() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "godwit", "worker", "tests.runtime.sample_app:mq"]
    return subprocess.Popen(command, env=os.environ, cwd=ROOT)
