"""The long run under faults: `python -m benchmarks.soak --minutes 5`.

Rounds of publishers and workers on a SQLite file, killed with -9 at random and reconciled from outside as in
tests/faults, side by side with the state machine of tests/properties at seeds nobody has tried. A round that does not
reconcile keeps its folder.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from benchmarks.results import Report, Result, report, save
from tests.conformance.harness import Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.reconciliation import Reconciliation

MESSAGES: Final = 20_000
KILLS: Final = 40
ROOT: Final = Path(__file__).resolve().parent.parent
NO_TESTS_LEFT: Final = 0


class Round:
    """One storm: its seed, what it did, how it was judged."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.folder = Path(tempfile.mkdtemp(prefix="godwit-soak-"))
        self.kills = 0
        self.seconds = 0.0
        self.found: Reconciliation | None = None
        self.problem = ""

    async def run(self, messages: int, kills: int) -> None:
        """Let it rage and judge it; a round without a problem leaves nothing behind."""
        began = time.monotonic()
        children = ChildProcesses()
        harness = Harness("sqlite", self.folder, live=True)
        await harness.start()
        try:
            await harness.declare(ORDERED)
            chaos = RandomKills(children=children, place=self.folder, random=random.Random(self.seed), count=messages)
            chaos.begin()
            await chaos.run(kills)
            self.kills = chaos.kills
            self.found = await chaos.end(harness)
            self.found.verify()
        except AssertionError as problem:
            self.problem = str(problem) or "an assertion failed"
        finally:
            children.kill_all()
            await harness.stop()
        self.seconds = time.monotonic() - began
        if not self.problem:
            shutil.rmtree(self.folder)


class StateMachine:
    """The property tests in a process of their own, at a random seed, for as long as there is time."""

    def __init__(self) -> None:
        self.seed = secrets.randbits(32)
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 (it lives as long as the process)
        command = [sys.executable, "-m", "pytest", "tests/properties", "-q", "-x", "-p", "no:cacheprovider"]
        settings = ["--hypothesis-profile=soak", f"--hypothesis-seed={self.seed}", "-o", "timeout=0"]
        self._process = subprocess.Popen([*command, *settings], cwd=ROOT, stdout=self._log, stderr=subprocess.STDOUT)

    def end(self) -> str:
        """Stop it; return what it found, or nothing."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
            return ""
        self._log.seek(0)
        return "" if self._process.returncode == NO_TESTS_LEFT else self._log.read()


def soak(minutes: float, console: Console) -> tuple[list[Round], str, int]:
    """Run rounds until the time is up, at least one; return them and what the state machine found."""
    until = time.monotonic() + minutes * 60
    machine = StateMachine()
    rounds: list[Round] = []
    while not rounds or time.monotonic() + rounds[-1].seconds < until:
        one = Round(secrets.randbits(32))
        rounds.append(one)
        with console.status(f"round {len(rounds)}, seed {one.seed} ..."):
            asyncio.run(one.run(MESSAGES, KILLS))
        console.print(
            f"round {len(rounds)}: seed {one.seed}, {one.seconds:.0f} s, {one.kills} kills, {one.problem or 'in order'}"
        )
    with console.status("the state machine goes on ..."):
        time.sleep(max(0.0, until - time.monotonic()))
    return rounds, machine.end(), machine.seed


def reported(minutes: float, rounds: list[Round], found: str, seed: int) -> Report:
    """Put the rounds together; what must not happen is summed, so that no median hides it."""
    judged = [one.found for one in rounds if one.found is not None]

    def never(name: str, count: float) -> Result:
        return Result(name=name, unit="in all rounds", repeats=[count], goal=0, floor=0, lower_is_better=True)

    results = [
        Result(name="messages accepted and done", unit="a round", repeats=[one.done for one in judged] or [0]),
        Result(name="kill -9", unit="a round", repeats=[one.kills for one in rounds]),
        Result(name="held by the killed", unit="a round", repeats=[one.held for one in judged] or [0]),
        Result(name="delivered again", unit="a round", repeats=[one.repeated for one in judged] or [0]),
        never("lost", sum(one.lost for one in judged)),
        never("delivered again without a crash of its worker", sum(one.unexplained for one in judged)),
        never("out of order", sum(one.out_of_order for one in judged)),
        never("rounds that did not reconcile", sum(bool(one.problem) for one in rounds)),
        never("failures of the state machine", int(bool(found))),
    ]
    settings = {
        "time": f"{minutes:g} minutes, {len(rounds)} rounds of {MESSAGES:,} messages",
        "storm": "2 publishers, 4 workers, one SQLite file; two thirds of the messages have one of 40 ordering keys",
        "state machine": f"tests/properties, profile soak, seed {seed}, beside the storm",
    }
    return report("soak", settings, results)


def on_redis(console: Console, *, keep: bool) -> int:
    """Soak the Redis broker; its length is given in messages."""
    from benchmarks.__main__ import show
    from benchmarks.redis_soak import soak as soak_redis

    result = soak_redis(messages=100_000, ready=1_000_000, kills=100, console=console)
    show(result, console)
    if keep:
        save(result)
    return 1 if any(one.verdict == "BELOW" for one in result.results) else 0


def on_large_queues(console: Console, *, keep: bool) -> int:
    """Make calls on queues with a million messages."""
    from benchmarks.__main__ import show
    from benchmarks.soak_large import soak as soak_large

    result = soak_large(console)
    show(result, console)
    if keep:
        save(result)
    return 1 if any(one.verdict == "BELOW" for one in result.results) else 0


def steadily(where: str, minutes: float, rate: int, console: Console, *, keep: bool) -> int:
    """Publish, handle and record at a steady rate."""
    from benchmarks.__main__ import show
    from benchmarks.soak_steady import soak as soak_steady

    result = soak_steady(where, minutes, rate, console)
    show(result, console)
    if keep:
        save(result)
    return 1 if any(one.verdict == "BELOW" for one in result.results) else 0


def on_spark(rows: int, console: Console, *, keep: bool) -> int:
    """Soak the pipeline: kills first, then what a row costs as the journal grows."""
    from benchmarks import spark_soak
    from benchmarks.__main__ import show

    code = spark_soak.kills()
    if code:
        return code
    result = spark_soak.growth(rows, console)
    show(result, console)
    if keep:
        save(result)
    return 1 if any(one.verdict == "BELOW" for one in result.results) else 0


def main(arguments: list[str]) -> int:
    """Soak, show and write down; exit 1 when something was found."""
    parser = argparse.ArgumentParser(prog="./dev soak", description="The long run under faults.")
    parser.add_argument("--minutes", type=float, default=5, help="how long (default: 5)")
    parser.add_argument("--broker", choices=("sqlite", "redis"), default="sqlite", help="which one (default: sqlite)")
    parser.add_argument(
        "--spark", action="store_true", help="the pipeline and its sink, under kills and as the journal grows, instead"
    )
    parser.add_argument("--rows", type=int, default=10_000_000, help="the large journal of --spark (default: 10000000)")
    parser.add_argument("--steady", choices=("embedded", "servers"), help="a steady rate with recorder instead")
    parser.add_argument("--rate", type=int, default=1_000, help="messages a second of --steady (default: 1000)")
    parser.add_argument("--large", action="store_true", help="what calls cost with a million messages instead")
    parser.add_argument("--no-save", action="store_true", help="leave docs/benchmarks as it is")
    options = parser.parse_args(arguments)
    console = Console()
    if options.spark:
        return on_spark(options.rows, console, keep=not options.no_save)
    if options.large:
        return on_large_queues(console, keep=not options.no_save)
    if options.steady:
        return steadily(options.steady, options.minutes, options.rate, console, keep=not options.no_save)
    if options.broker == "redis":
        return on_redis(console, keep=not options.no_save)
    rounds, found, seed = soak(options.minutes, console)
    result = reported(options.minutes, rounds, found, seed)
    table = Table(title=f"soak: {result.date}, {result.machine}", title_justify="left")
    for column in ("measured", "median", "lowest", "highest", "verdict"):
        table.add_column(column, justify="left" if column in {"measured", "verdict"} else "right")
    for one in result.results:
        numbers = (f"{value:,.0f}" for value in (one.median, min(one.repeats), max(one.repeats)))
        verdict = {"goal": "never", "-": ""}.get(one.verdict, "FOUND")
        table.add_row(f"{one.name} ({one.unit})", *numbers, verdict)
    console.print(table)
    for one_round in rounds:
        if one_round.problem:
            console.print(f"seed {one_round.seed}: {one_round.problem}\n  its files: {one_round.folder}")
    if found:
        console.print(found, markup=False)
    if not options.no_save:
        save(result)
    return 1 if found or any(one_round.problem for one_round in rounds) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
