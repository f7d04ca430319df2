"""A pipeline's driver as a process of its own, to be killed: `python -m tests.pipeline.driver SETTINGS`.

It says a line for each batch.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from godwit.pipeline.jobs.run import RunSettings, run
from godwit.pipeline.publishing import Outcome
from tests.pipeline.drivers import HOLD, release, until


def main() -> None:
    settings = msgspec.json.decode(sys.argv[1], type=RunSettings)

    def report(outcome: Outcome) -> None:
        print(f"batch {outcome.batch} {outcome.rows}", flush=True)
        if os.environ[HOLD]:
            until(Path(os.environ[HOLD]).exists)

    release()
    summary = run(settings, report=report)
    print(f"done {summary.rows}", flush=True)


if __name__ == "__main__":
    main()
