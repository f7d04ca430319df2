"""A process that has loaded pytest and the libraries, and forks itself for each run: a planted bug costs no new start.

It is run as a script, so that nothing of Godwit or of its tests is loaded before the fork. A line in is the place, the
environment and the arguments of a run and the file to write to; a line out is pytest's exit code.
"""

from __future__ import annotations

import asyncio  # noqa: F401 - loaded here so that no run has to
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Final

import pytest

LIBRARIES: Final = ("hypothesis.stateful", "msgspec", "hiredis", "pamqp.commands", "sqlite3", "rich.progress", "typer")


def run(place: str, environment: dict[str, str], arguments: list[str], output: str) -> int:
    """Run pytest as `python -m pytest` would at `place`."""
    descriptor = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [place, str(Path(place) / "src")]
    return int(pytest.main(arguments))


def main() -> None:
    """Serve until the pipe is closed."""
    for library in LIBRARIES:
        importlib.import_module(library)
    for line in sys.stdin:
        child = os.fork()
        if not child:
            sys.exit(run(*json.loads(line)))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
