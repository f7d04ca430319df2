"""A pipeline's driver as a process of its own, to be killed: `python -m tests.pipeline.driver SETTINGS`.

It says a line for each batch.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import msgspec

from godwit.pipeline.batch.publisher import BatchOutcome
from godwit.pipeline.jobs.run import RunSettings, follow, run
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.drivers import HOLD, WHOLE, members, taken_over, until


def end_everything(pid: int, how: int, *, kill: Callable[[int, int], None] = os.kill) -> None:
    """Kill all processes of this session, then the one meant, so that nothing of a driver lives on behind it."""
    for other in members(os.getsid(0)):
        if other != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                kill(other, how)
    kill(pid, how)


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=RunSettings)

    def report(outcome: BatchOutcome) -> None:
        print(f"batch {outcome.batch} {outcome.rows}", flush=True)
        if os.environ[HOLD]:
            until(Path(os.environ[HOLD]).exists)

    if os.environ[WHOLE]:
        mock.patch.object(os, "kill", end_everything).start()  # which is what a fault point calls
    with taken_over() as session:
        if session is None:
            run(settings, report=report)
        else:
            with Connections(settings.broker_url, settings.store_url) as connections:
                follow(session, connections, settings, report)
            print("done", flush=True)
            os._exit(0)  # the JVM stays, and closing a gateway through which it called back would wait for it
    print("done", flush=True)


if __name__ == "__main__":
    main()
