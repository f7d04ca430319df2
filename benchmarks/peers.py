"""Godwit beside other queues on the same Redis server, in the same run: `./dev bench peers`.

Every side does the same: one process enqueues (one by one, by fifty callers at once, in bulk), then one worker process
drains that backlog with a handler that only looks at the time, then the producer sends at a steady rate and the handler
notes how long each message took. The sides take turns within each repeat, so that a noisy moment hits them alike; each
begins with an empty server. The other queues live in an environment of their own (`benchmarks/peers.lock`), with the
settings their own documentation recommends; their modules say which.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.results import REPEATS, Report, Result, ratios, report
from tests.servers.redis import RedisServer, redis_server

ROOT: Final = Path(__file__).resolve().parent.parent
HERE: Final = Path(sys.executable).parent
THERE: Final = ROOT / ".venv-peers" / "bin"
LOCK: Final = ROOT / "benchmarks" / "peers.lock"
SINGLE: Final = 500
CONCURRENT: Final = 1_000
TIMED: Final = 300
SLICES: Final = 10
SLICE_TIMED: Final = 60
SLICE_BULK: Final = 2_000
PATIENCE_SECONDS: Final = 60.0


@dataclass(frozen=True, kw_only=True)
class Side:
    """One queue: where its programs live, how its worker is started, how much it can take in about a second."""

    name: str
    worker: tuple[str, ...]
    bulk: int = 1_500
    bin: Path = THERE
    package: str = ""
    at_least_once: bool = True

    @property
    def module(self) -> str:
        """Where its side is written down."""
        return f"benchmarks.peers_{self.name.lower()}"


SIDES: Final = (
    Side(name="raw", worker=("python", "-m", "benchmarks.peers_raw"), bulk=20_000, bin=HERE),
    Side(name="Godwit", worker=("godwit", "worker", "benchmarks.peers_godwit:mq"), bulk=20_000, bin=HERE),
    Side(
        name="FastStream",
        worker=("python", "-m", "benchmarks.peers_faststream"),
        bulk=4_000,
        package="faststream",
    ),
    Side(
        name="taskiq",
        worker=("taskiq", "worker", "benchmarks.peers_taskiq:broker", "--workers", "1", "--log-level", "WARNING"),
        bulk=4_000,
        package="taskiq-redis",
    ),
    Side(
        name="Dramatiq",
        worker=("dramatiq", "benchmarks.peers_dramatiq", "--processes", "1"),
        bulk=3_000,
        package="dramatiq",
    ),
    Side(
        name="Celery",
        worker=("celery", "-A", "benchmarks.peers_celery", "worker", "-c", "1", "--without-gossip", "--without-mingle"),
        package="celery",
    ),
    Side(name="RQ", worker=("rq", "worker", "-q", "-w", "rq.SimpleWorker", "peers"), bulk=300, package="rq"),
    Side(
        name="Huey",
        worker=("huey_consumer", "benchmarks.peers_huey.huey", "-w", "1", "-q"),
        bulk=3_000,
        package="huey",
        at_least_once=False,
    ),
)
Found = dict[str, dict[str, list[float]]]
REASONS: Final = {
    "drain against raw": (
        "Draining: beside reading and deleting, each message is leased, fenced, counted and journaled twice, "
        "and its handler is timed and counted."
    ),
    "bulk publish against raw, four groups": ("Four groups: a message is four stream entries, one for each group."),
    "bulk through the manager against raw": (
        "Bulk through the manager: every message of a call is checked and sealed before the first is sent, since "
        "one bad message refuses them all; the server waits meanwhile (decision 0091)."
    ),
    "one by one against raw": (
        "One by one: the raw loop's synchronous client sends one XADD. An awaited enqueue "
        "prepares and counts its message and runs a script of six commands (counters, time, id, message, "
        "journal, counters), of which four write; with cold caches, as between two sleeps, the server needs "
        "about 45 us for it and 7 for an XADD (decision 0091)."
    ),
    "latency p50 against raw": (
        "Latency: a message passes two scripts (store, lease), a marker that wakes and several turns of the "
        "event loop, where the raw loop's XADD answers a waiting XREADGROUP."
    ),
}
"""Why a target is not reached."""


class Producer:
    """A producer process and its orders."""

    def __init__(self, side: Side, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                [side.bin / "python", "-c", f"from {side.module} import produce; produce()"],
                cwd=ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def order(self, what: str, count: int) -> float | None:
        """Give an order; return the seconds it took, or None when the side cannot do it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, "count": count}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended: {self._log.read_text()[-2_000:]}")
        seconds: float | None = json.loads(line)["seconds"]
        return seconds

    def close(self) -> None:
        """Let it go home."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        end(self._process)
        self._process.stdout.close()


def end(process: subprocess.Popen[Any]) -> None:
    """Wait for a process of ours, or make it end."""
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def working(side: Side, environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[Any]]:
    """Run its worker."""
    program, *arguments = side.worker
    with log.open("wb") as output:
        process = subprocess.Popen(
            [side.bin / program, *arguments], cwd=ROOT, env=environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        process.terminate()
        end(process)


def awaited(file: Path, process: subprocess.Popen[Any], log: Path) -> dict[str, Any]:
    """Return what the worker writes down."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not file.exists():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"{process.args!r} wrote no {file.name}: {log.read_text(errors='replace')[-2_000:]}")
        time.sleep(0.01)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def environment_for(server: RedisServer, folder: Path) -> dict[str, str]:
    """Return what a side's programs need to know."""
    return {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PEERS_URL": server.url,
        "GODWIT_URL": server.url,
        "RQ_REDIS_URL": server.url,
        "PEERS_FOLDER": str(folder),
        "PEERS_TIMED": str(TIMED),
    }


def measure(side: Side, server: RedisServer, folder: Path) -> dict[str, float]:
    """Let one side do everything once; return rates in messages per second and latencies in ms."""
    server.flush()
    environment = environment_for(server, folder)
    producer = Producer(side, environment, folder / "producer.log")
    try:
        producer.order("single", 50)  # connections and scripts are there before anything is measured
        single, concurrent = producer.order("single", SINGLE), producer.order("concurrent", CONCURRENT)
        bulk = producer.order("bulk", side.bulk)
        assert single is not None
        assert bulk is not None
        backlog = 50 + SINGLE + side.bulk + (CONCURRENT if concurrent is not None else 0)
        found = {"single": SINGLE / single, "bulk": side.bulk / bulk}
        if concurrent is not None:
            found["concurrent"] = CONCURRENT / concurrent
        log = folder / "worker.log"
        with working(side, {**environment, "PEERS_BACKLOG": str(backlog)}, log) as worker:
            drained = awaited(folder / "drained", worker, log)
            found["drain"] = drained["count"] / drained["seconds"]
            producer.order("timed", TIMED)
            latencies = [each / 1e6 for each in awaited(folder / "timed", worker, log)["latencies"]]
    finally:
        producer.close()
    cuts = statistics.quantiles(latencies, n=100)
    return found | {"p50": statistics.median(latencies), "p99": cuts[98]}


def compare(server: RedisServer, repeats: int, sides: tuple[Side, ...] = SIDES) -> Found:
    """Measure all sides in turn."""
    found: Found = {side.name: {} for side in sides}
    for number in range(repeats):
        for side in sides:
            folder = Path(tempfile.mkdtemp(prefix="godwit-peers-"))
            for name, value in measure(side, server, folder).items():
                found[side.name].setdefault(name, []).append(value)
            shutil.rmtree(folder)
            shown = ", ".join(f"{name} {values[-1]:,.4g}" for name, values in found[side.name].items())
            print(f"  {number + 1}/{repeats} {side.name}: {shown}", file=sys.stderr, flush=True)
    return found


def in_slices(server: RedisServer, repeats: int) -> Found:
    """Measure enqueues and latencies of the raw loop and of Godwit, in `SLICES` turns a repeat.

    A machine can be twice as fast from one second to the next; turns of a fraction of a second have the same of it.
    """
    found: Found = {side.name: {} for side in SIDES[:2]}
    for number in range(repeats):
        server.flush()
        with tempfile.TemporaryDirectory(prefix="godwit-peers-") as name, ExitStack() as stack:
            both = [Sliced(side, server, Path(name) / side.name, stack) for side in SIDES[:2]]
            for _ in range(SLICES):
                for one in both:
                    one.enqueue()
            for one in both:
                one.start_worker(stack)
            for _ in range(SLICES):
                for one in both:
                    one.send_timed()
            for one in both:
                for what, value in one.found().items():
                    found[one.side.name].setdefault(what, []).append(value)
                shown = ", ".join(f"{what} {values[-1]:,.4g}" for what, values in found[one.side.name].items())
                print(f"  {number + 1}/{repeats} {one.side.name} in turns: {shown}", file=sys.stderr, flush=True)
    return found


class Sliced:
    """One side that does its work in many short turns."""

    def __init__(self, side: Side, server: RedisServer, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.side, self._folder = side, folder
        self._environment = environment_for(server, folder) | {"PEERS_TIMED": str(SLICES * SLICE_TIMED)}
        self._producer = Producer(side, self._environment, folder / "producer.log")
        stack.callback(self._producer.close)
        self._producer.order("single", 50)  # connections and scripts are there before anything is measured
        self._backlog = 50
        self._seconds: dict[str, float] = {}
        self._counts: dict[str, int] = {}
        self._worker: subprocess.Popen[Any] | None = None

    def enqueue(self) -> None:
        """Enqueue one by one, by fifty callers at once where that is possible, and in bulk."""
        for what, count in (("single", SINGLE), ("concurrent", CONCURRENT), ("bulk", SLICE_BULK)):
            seconds = self._producer.order(what, count)
            if seconds is not None:
                self._seconds[what] = self._seconds.get(what, 0.0) + seconds
                self._counts[what] = self._counts.get(what, 0) + count
                self._backlog += count

    def start_worker(self, stack: ExitStack) -> None:
        """Start the worker and wait until it has nothing left to do."""
        environment, log = {**self._environment, "PEERS_BACKLOG": str(self._backlog)}, self._folder / "worker.log"
        self._worker = stack.enter_context(working(self.side, environment, log))
        awaited(self._folder / "drained", self._worker, log)

    def send_timed(self) -> None:
        """Send at a steady rate for a while."""
        self._producer.order("timed", SLICE_TIMED)

    def found(self) -> dict[str, float]:
        """Return rates in messages per second and latencies in ms."""
        assert self._worker is not None
        noted = awaited(self._folder / "timed", self._worker, self._folder / "worker.log")["latencies"]
        latencies = [each / 1e6 for each in noted]
        rates = {what: count / self._seconds[what] for what, count in self._counts.items()}
        return rates | {"p50": statistics.median(latencies), "p99": statistics.quantiles(latencies, n=100)[98]}


def versions() -> dict[str, str]:
    """Return the versions of the other queues, as locked."""
    locked = dict(line.split(" ")[0].split("==") for line in LOCK.read_text().splitlines() if "==" in line)
    return {side.name: f"{side.package} {locked[side.package]}" for side in SIDES if side.package}


def effective(server: RedisServer) -> dict[str, str]:
    """Return the server's settings, having checked that they are what the comparison says."""
    with server.client() as client:
        settings: dict[str, str] = client.config_get("appendonly", "appendfsync", "maxmemory-policy")
        info = client.info("server")
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    shown = ", ".join(f"{name} {value}" for name, value in sorted(settings.items()))
    return {"server": f"Redis {info['redis_version']}, {shown}, loopback"}


def judged(found: Found) -> list[Result]:
    """Return every side's numbers, and Godwit's shares of raw and of the fastest peer that keeps at-least-once."""
    peers = [side.name for side in SIDES if side.at_least_once and side.package and side.name in found]
    units = {"p50": "ms", "p99": "ms"}
    words = {
        "drain": "drain",
        "bulk": "bulk enqueue",
        "single": "one by one",
        "concurrent": "50 callers at once",
        "p50": "latency at 200/s, p50",
        "p99": "latency at 200/s, p99",
    }
    results = [
        Result(name=f"{words[name]}: {side}", unit=units.get(name, "messages/s"), repeats=found[side][name])
        for name in words
        for side in found
        if name in found[side]
    ]
    mine, raw = found["Godwit"], found["raw"]
    fastest = max(peers, key=lambda side: statistics.median(found[side]["drain"]))
    results += [
        share(f"drain against {fastest}, the fastest peer", mine["drain"], found[fastest]["drain"], 10, 6),
        share("drain against raw", mine["drain"], raw["drain"], 0.5, 0.3),
        share("50 callers at once against one by one", mine["concurrent"], mine["single"], 8, 5),
        share("one by one against raw", mine["single"], raw["single"], 0.8, 0.65),
        share("latency p50 against raw", mine["p50"], raw["p50"], 1.5, 2, lower=True),
        share("latency p99 against raw", mine["p99"], raw["p99"], 2, 3, lower=True),
    ]
    return results


def share(
    name: str,
    above: list[float],
    below: list[float],
    goal: float | None = None,
    floor: float | None = None,
    *,
    lower: bool = False,
) -> Result:
    """Return the ratio of two series."""
    return Result(name=name, unit="x", repeats=ratios(above, below), goal=goal, floor=floor, lower_is_better=lower)


def run(repeats: int = REPEATS) -> Report:
    """Run the comparison."""
    if not (THERE / "python").exists():
        raise SystemExit("The other queues are not installed. Run it as ./dev bench peers, which does that.")
    began = time.monotonic()
    with redis_server() as server:
        settings = effective(server)
        found = compare(server, repeats)
    settings |= {
        "load": "no-op handlers, payloads of about 200 bytes as JSON, one producer and one worker process a side",
        "sides": "in turn within each repeat, each on an empty server, all through their public interface",
        "Godwit": "dedup window 10 min, journal on, leases, limits and metrics on, concurrency 100",
        "raw": "redis-py with hiredis, pipelines of 100, XREADGROUP COUNT 100, XACK + XDEL (benchmarks/raw_redis.py)",
        **versions(),
        "at most once": "Huey takes a task off its list before it runs; it does not count as a peer to beat",
        "time": f"{time.monotonic() - began:.0f} s",
    }
    results = judged(found)
    return report("peers", settings, results, reasons(results))


def reasons(results: list[Result]) -> list[str]:
    """Say why targets are not reached, as far as that is known."""
    return [REASONS[one.name] for one in results if one.name in REASONS and one.verdict != "goal"]
