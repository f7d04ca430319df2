"""Every program in examples/ runs as its reader would run it, and prints what is written here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.specification import ROOT

PRINTS = {
    "birthdays.py": """\
anniversary greeting to grace
birthday greeting to ada
dead letters: ['Permanent: no such user']
""",
    "orders.py": """\
published 1 message
processing Order #1 (order 12345)
left over: []
""",
    "telemetry.py": "30 readings of 30 collected\n",
    "user_events.py": """\
first: ['login']
before its ack: []
after its ack: ['page-view']
""",
}
"""What an example prints, where that is always the same."""

LOGS = {"birthdays.py": 'error="Permanent: no such user"'}
"""What an example logs to stderr; the others log nothing."""

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_an_example_runs(example: Path, tmp_path: Path) -> None:
    # In a folder of its own, because an example may write files beside itself.
    run = subprocess.run(
        [sys.executable, "-W", "error", example], cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False
    )
    assert run.returncode == 0, run.stderr
    assert LOGS.get(example.name, "") in run.stderr
    assert bool(run.stderr) == (example.name in LOGS), run.stderr
    assert run.stdout.strip()
    assert run.stdout == PRINTS.get(example.name, run.stdout)


def test_both_worked_examples_of_the_in_process_broker_are_there() -> None:
    assert PRINTS.keys() <= {example.name for example in EXAMPLES}
