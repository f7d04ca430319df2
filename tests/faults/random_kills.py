"""A storm: publishers and workers on one broker, killed at random and started again, until everything is done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random

from godwit.core.queues import GroupSpec
from tests.conformance.harness import G, Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import publish
from tests.faults.reconciliation import Reconciliation, agreeing, reconcile, url_of
from tests.faults.record import lines_of, read_all
from tests.faults.worker import work
from tests.waiting import eventually

ORDERED = GroupSpec(name=G, message_ordering=True, max_crashes=None)
LEASE = timedelta(seconds=5)
BYTES_PER_MESSAGE = 200
"""Roughly what publishers and workers write down about one message; it paces the kills."""


@dataclass(kw_only=True)
class RandomKills:
    """Processes whose records are at `place`; `publishers` send `count` messages in all, `workers` do them.

    Without a `url` the broker is the SQLite file there. `broker_kill` kills the broker itself and starts it again.
    """

    children: ChildProcesses
    place: Path
    random: Random
    count: int
    url: str = ""
    broker_kill: Callable[[], None] | None = None
    broker_kills: int = 0
    broker_share: float = 0.2
    """How many of the kills hit the broker, when it can be killed."""
    publishers: int = 2
    workers: int = 4
    batch: int = 20
    limit: int = 10
    lease: timedelta = LEASE
    kills: int = 0
    victims: set[str] = field(default_factory=set)
    _incarnations: int = 0
    _running: dict[str, BaseProcess] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.url = self.url or url_of(self.place)

    def begin(self) -> None:
        """Start all processes."""
        for number in range(self.publishers):
            self._publisher(f"p{number}")
        for _ in range(self.workers):
            self._worker()

    def _publisher(self, name: str) -> None:
        self._running[name] = self.children.start(
            publish,
            self.url,
            self.place / f"{name}.publisher",
            name=name,
            count=self.count // self.publishers,
            batch=self.batch,
        )

    def _worker(self) -> None:
        name = f"w{self._incarnations}"
        self._incarnations += 1
        self._running[name] = self.children.start(
            work,
            self.url,
            self.place / f"{name}.worker",
            name=name,
            stop=self.place / "stop",
            lease=self.lease,
            limit=self.limit,
        )

    def written(self) -> int:
        """Return how much all processes have written down: the storm's progress."""
        return sum(path.stat().st_size for kind in ("publisher", "worker") for path in self.place.glob(f"*.{kind}"))

    def publishing(self) -> bool:
        """Say whether a publisher still runs."""
        return any(self._running[name].is_alive() for name in self._running if name.startswith("p"))

    def kill_one(self) -> None:
        """Kill a process at random and start a successor: a publisher goes on, a worker is a new one."""
        if self.broker_kill is not None and self.random.random() < self.broker_share:
            self.broker_kill()
            self.broker_kills += 1
            self.kills += 1
            return
        name = self.random.choice([name for name, member in self._running.items() if member.is_alive()])
        member = self._running.pop(name)
        self.children.kill(member)
        self.kills += 1
        if name.startswith("p"):
            self._publisher(name)
        else:
            self.victims.add(name)
            self._worker()

    async def run(self, kills: int, *, over: Callable[[], bool] = lambda: False) -> None:
        """Kill so often, spread over the storm's progress, until there is nothing more to publish."""
        step = self.count * BYTES_PER_MESSAGE // (kills + 1)
        while self.kills < kills and not over():
            goal = self.written() + self.random.randrange(step)
            await eventually(
                lambda goal=goal: self.written() >= goal or not self.publishing(),
                within=timedelta(seconds=60),
                what="progress under kills",
            )
            self.kill_one()
            if not self.publishing():
                return

    async def end(self, harness: Harness, *, within: timedelta = timedelta(seconds=60)) -> Reconciliation:
        """Let everything be done, stop all processes, and judge."""
        publishers = [member for name, member in self._running.items() if name.startswith("p")]
        await self.children.finished(*publishers, within=within)

        async def drained() -> bool:
            return (await harness.stats()).depth == 0

        try:
            await eventually(drained, within=within, what="an empty queue")
        except AssertionError as error:
            raise AssertionError(f"{error}: {await harness.stats()}") from error
        (self.place / "stop").touch()
        await self.children.finished(*self._running.values())
        published, worked = read_all(self.place, "publisher"), read_all(self.place, "worker")
        return reconcile(await agreeing(harness), lines_of(published, "accepted"), worked, self.victims)
