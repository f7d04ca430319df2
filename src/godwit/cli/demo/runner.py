"""Runs the demo: starts the processes, follows the journal, kills one worker, reconciles at the end."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from godwit.brokers.contract import Broker, GroupStats
from godwit.brokers.urls import connect
from godwit.cli.demo.journal_tally import JournalTally
from godwit.cli.demo.processes import DemoProcess, stop_all
from godwit.cli.demo.reconciliation import Reconciliation, reconcile
from godwit.cli.demo.records import ProcessSettings, read
from godwit.cli.demo.workload import GROUPS, PUBLISHERS, QUEUES, SPECS, QueueGroup
from godwit.cli.shown.quantities import count_text
from godwit.core.journal.projection import Address
from godwit.core.journal.vocabulary import Event
from godwit.core.names import GroupName, QueueName

LOOK_SECONDS: Final = 0.15
HUNT_SECONDS: Final = 0.02
HUNTS_PER_LOOK: Final = 5
KILL_AT: Final = 0.35
"""The share of the messages handled when the victim is killed: in the middle, with time to recover."""
FULL_HANDS: Final = 5
PATIENCE: Final = 15
"""How often the victim is spared for holding fewer; then a single message is enough."""
LETTERS_PAGE: Final = 1_000


class DemoSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a run. `sabotage` makes a worker ack an unrecorded message, which must be noticed."""

    url: str
    folder: Path
    messages: int
    workers: int
    seed: int
    sabotage: bool = False
    limit_seconds: float = 180


class DemoState(msgspec.Struct, frozen=True):
    """The state of the demo at one moment."""

    elapsed: float
    planned: int
    published: int
    stats: Mapping[QueueGroup, GroupStats]
    tally: JournalTally
    workers: tuple[DemoProcess, ...]


class DemoView(Protocol):
    """A view of a running demo."""

    def update(self, state: DemoState) -> None:
        """Show the present state."""
        ...

    def event(self, elapsed: float, text: str) -> None:
        """Show an event."""
        ...


class DemoRun:
    """A run of the demo."""

    def __init__(self, settings: DemoSettings, view: DemoView) -> None:
        self._settings, self._view = settings, view
        self._tally = JournalTally()
        self._publishers: list[DemoProcess] = []
        self._workers: list[DemoProcess] = []
        self._held: dict[Address, str] = {}
        self._returned = self._recovered = False
        self._killed_at = 0.0
        self._tries = 0
        self._incidents: list[str] = []
        self._began = time.monotonic()

    async def run(self) -> Reconciliation:
        """Run the demo from beginning to end."""
        async with connect(self._settings.url) as broker:
            for spec in SPECS:
                await broker.declare(spec, QUEUES[spec.name])
            try:
                self._start_processes()
                while not await self._finished(broker):
                    await self._kill_worker(broker)
                    self._report_recovery()
                    await asyncio.sleep(LOOK_SECONDS)
                self._report_recovery()
            finally:
                stop_all((*self._publishers, *self._workers))
            return await self._verdict(broker)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def _start_processes(self) -> None:
        share, rest = divmod(self._settings.messages, PUBLISHERS)
        for number in range(PUBLISHERS):
            part = self._part("publisher", number, messages=share + (number < rest))
            self._publishers.append(DemoProcess(part, "godwit.cli.demo.publisher", self._settings.folder))
        for _ in range(self._settings.workers):
            self._add_worker()
        self._event(f"{PUBLISHERS} publishers and {self._settings.workers} workers started, each a process of its own")

    def _add_worker(self) -> DemoProcess:
        number = len(self._workers)
        part = self._part("worker", number, forget=20 if self._settings.sabotage and number == 0 else 0)
        self._workers.append(DemoProcess(part, "godwit.cli.demo.worker", self._settings.folder))
        return self._workers[-1]

    def _part(self, role: str, number: int, *, messages: int = 0, forget: int = 0) -> ProcessSettings:
        name = f"{role}-{number + 1}"
        return ProcessSettings(
            name=name,
            url=self._settings.url,
            record=str(self._settings.folder / f"{name}.ndjson"),
            number=number,
            seed=self._settings.seed,
            messages=messages,
            forget=forget,
        )

    async def _finished(self, broker: Broker) -> bool:
        """Update the view; say whether nothing is left to do, or waiting is of no use."""
        publishing = any(process.code is None for process in self._publishers)
        stats = await stats_of(broker)
        await self._tally.follow(broker.journal)
        published = len(set[str]().union(*self._tally.arrived.values()))
        self._view.update(
            DemoState(self.elapsed, self._settings.messages, published, stats, self._tally, tuple(self._workers))
        )
        for process in (*self._publishers, *self._workers):
            if process.crashed:
                self._incidents.append(
                    f"{process.name} ended with code {process.code}; its last words are in {process.log}"
                )
        if self.elapsed > self._settings.limit_seconds:
            self._incidents.append(f"it was not finished after {self._settings.limit_seconds:.0f} s")
        return bool(self._incidents) or (not publishing and all(group.depth == 0 for group in stats.values()))

    async def _kill_worker(self, broker: Broker) -> None:
        """Kill the last of the first workers, once, and only while it provably holds a message."""
        if self._held or self._tally.total(Event.ACKED) < KILL_AT * self._settings.messages:
            return
        victim = self._workers[self._settings.workers - 1]
        for _ in range(HUNTS_PER_LOOK):
            self._tries += 1
            victim.suspend()
            await self._tally.follow(broker.journal)
            held = self._tally.held_by(victim.name)
            if len(held) >= (FULL_HANDS if self._tries < PATIENCE else 1):
                victim.kill()
                self._held, self._killed_at = held, self.elapsed
                messages = count_text(len(held), "message")
                self._event(f"kill -9 {victim.name} (pid {victim.pid}) while it held {messages}")
                self._event(f"{self._add_worker().name} started in its place")
                return
            victim.resume()
            await asyncio.sleep(HUNT_SECONDS)

    def _report_recovery(self) -> None:
        if not self._held:
            return
        back = sum(name in self._tally.ran_out[group_of(address)] for address, name in self._held.items())
        since = f"{self.elapsed - self._killed_at:.1f} s later"
        if back == len(self._held) and not self._returned:
            self._returned = True
            self._event(f"its leases have run out, {count_text(back, 'message')} came back ({since})")
        copies = self._tally.projection.copies
        if (
            self._returned
            and not self._recovered
            and all(address not in copies or copies[address].state == "dead" for address in self._held)
        ):
            self._recovered = True
            self._event(f"other workers have finished all of them ({since})")

    async def _verdict(self, broker: Broker) -> Reconciliation:
        """Read the journal again from its beginning, and reconcile it with the processes' records."""
        tally = JournalTally()
        await tally.follow(broker.journal)
        held: dict[QueueGroup, set[str]] = {group: set() for group in GROUPS}
        for address, name in self._held.items():
            held[group_of(address)].add(name)
        if not self._held and not self._incidents:
            self._incidents.append("no worker could be killed while it held messages; ask for more --messages")
        return reconcile(
            read(self._settings.folder.glob("*.ndjson")),
            tally,
            await stats_of(broker),
            {group: await letters_of(broker, group) for group in GROUPS},
            held=held,
            incidents=self._incidents,
        )

    def _event(self, text: str) -> None:
        self._view.event(self.elapsed, text)


def group_of(address: Address) -> QueueGroup:
    """Return the group of a copy."""
    return QueueGroup(QueueName(address[0]), GroupName(address[1]))


async def stats_of(broker: Broker) -> dict[QueueGroup, GroupStats]:
    """Return the stats of each group."""
    return {QueueGroup(queue.name, group.name): group for queue in await broker.stats() for group in queue.groups}


async def letters_of(broker: Broker, group: QueueGroup) -> list[str]:
    """Return the ids of all dead letters of a group."""
    ids: list[str] = []
    after = None
    while page := await broker.dead_letters.page(group.queue, group=group.group, after=after, limit=LETTERS_PAGE):
        ids += [letter.envelope.id for letter in page]
        after = page[-1].id
    return ids
