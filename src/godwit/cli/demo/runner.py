"""Plays the demo: starts the processes, watches the journal, kills one worker, asks for the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Protocol

import msgspec

from godwit.brokers.contract import Broker, GroupStats
from godwit.brokers.urls import connect
from godwit.cli.demo.journal_tally import Tally
from godwit.cli.demo.processes import Player, stop_all
from godwit.cli.demo.reconciliation import Verdict, judge
from godwit.cli.demo.records import Part, read
from godwit.cli.demo.workload import PLACES, PUBLISHERS, QUEUES, SPECS, Place
from godwit.cli.shown.quantities import counted
from godwit.core.journal import Event
from godwit.core.names import GroupName, QueueName
from godwit.core.projection import Address

LOOK_SECONDS: Final = 0.15
HUNT_SECONDS: Final = 0.02
HUNTS_PER_LOOK: Final = 5
KILL_AT: Final = 0.35
"""The share of the messages handled when the victim is killed: in the middle, with time to recover."""
FULL_HANDS: Final = 5
PATIENCE: Final = 15
"""So many times the victim may go on because it holds less; then a single message is enough."""
LETTERS_PAGE: Final = 1_000


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked for. `sabotage` makes a worker ack something it did not record, which the verdict must notice."""

    url: str
    folder: Path
    messages: int
    workers: int
    seed: int
    sabotage: bool = False
    limit_seconds: float = 180


class Scene(msgspec.Struct, frozen=True):
    """What can be seen at one moment."""

    elapsed: float
    planned: int
    published: int
    stats: Mapping[Place, GroupStats]
    tally: Tally
    workers: tuple[Player, ...]


class View(Protocol):
    """Whoever watches."""

    def scene(self, scene: Scene) -> None:
        """See how things are now."""
        ...

    def event(self, elapsed: float, text: str) -> None:
        """Hear of something that happened."""
        ...


class Director:
    """One performance."""

    def __init__(self, play: Play, view: View) -> None:
        self._play, self._view = play, view
        self._tally = Tally()
        self._publishers: list[Player] = []
        self._workers: list[Player] = []
        self._held: dict[Address, str] = {}
        self._returned = self._recovered = False
        self._killed_at = 0.0
        self._tries = 0
        self._incidents: list[str] = []
        self._began = time.monotonic()

    async def perform(self) -> Verdict:
        """Play it from beginning to end."""
        async with connect(self._play.url) as broker:
            for spec in SPECS:
                await broker.declare(spec, QUEUES[spec.name])
            try:
                self._raise_curtain()
                while not await self._finished(broker):
                    await self._maybe_kill(broker)
                    self._notice_recovery()
                    await asyncio.sleep(LOOK_SECONDS)
                self._notice_recovery()
            finally:
                stop_all((*self._publishers, *self._workers))
            return await self._verdict(broker)

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def _raise_curtain(self) -> None:
        share, rest = divmod(self._play.messages, PUBLISHERS)
        for number in range(PUBLISHERS):
            part = self._part("publisher", number, messages=share + (number < rest))
            self._publishers.append(Player(part, "godwit.cli.demo.publisher", self._play.folder))
        for _ in range(self._play.workers):
            self._add_worker()
        self._event(f"{PUBLISHERS} publishers and {self._play.workers} workers started, each a process of its own")

    def _add_worker(self) -> Player:
        number = len(self._workers)
        part = self._part("worker", number, forget=20 if self._play.sabotage and number == 0 else 0)
        self._workers.append(Player(part, "godwit.cli.demo.worker", self._play.folder))
        return self._workers[-1]

    def _part(self, role: str, number: int, *, messages: int = 0, forget: int = 0) -> Part:
        name = f"{role}-{number + 1}"
        return Part(
            name=name,
            url=self._play.url,
            record=str(self._play.folder / f"{name}.ndjson"),
            number=number,
            seed=self._play.seed,
            messages=messages,
            forget=forget,
        )

    async def _finished(self, broker: Broker) -> bool:
        """Look, show, and say whether there is nothing left to do, or no use in waiting."""
        publishing = any(player.code is None for player in self._publishers)
        stats = await stats_of(broker)
        await self._tally.follow(broker.journal)
        published = len(set[str]().union(*self._tally.arrived.values()))
        self._view.scene(Scene(self.elapsed, self._play.messages, published, stats, self._tally, tuple(self._workers)))
        for player in (*self._publishers, *self._workers):
            if player.crashed:
                self._incidents.append(
                    f"{player.name} ended with code {player.code}; its last words are in {player.log}"
                )
        if self.elapsed > self._play.limit_seconds:
            self._incidents.append(f"it was not finished after {self._play.limit_seconds:.0f} s")
        return bool(self._incidents) or (not publishing and all(group.depth == 0 for group in stats.values()))

    async def _maybe_kill(self, broker: Broker) -> None:
        """Kill the last of the first workers, once, and only while it provably holds something."""
        if self._held or self._tally.total(Event.ACKED) < KILL_AT * self._play.messages:
            return
        victim = self._workers[self._play.workers - 1]
        for _ in range(HUNTS_PER_LOOK):
            self._tries += 1
            victim.freeze()
            await self._tally.follow(broker.journal)
            held = self._tally.held_by(victim.name)
            if len(held) >= (FULL_HANDS if self._tries < PATIENCE else 1):
                victim.kill()
                self._held, self._killed_at = held, self.elapsed
                self._event(f"kill -9 {victim.name} (pid {victim.pid}) while it held {counted(len(held), 'message')}")
                self._event(f"{self._add_worker().name} started in its place")
                return
            victim.thaw()
            await asyncio.sleep(HUNT_SECONDS)

    def _notice_recovery(self) -> None:
        if not self._held:
            return
        back = sum(name in self._tally.ran_out[place_of(address)] for address, name in self._held.items())
        since = f"{self.elapsed - self._killed_at:.1f} s later"
        if back == len(self._held) and not self._returned:
            self._returned = True
            self._event(f"its leases have run out, {counted(back, 'message')} came back ({since})")
        copies = self._tally.projection.copies
        if (
            self._returned
            and not self._recovered
            and all(address not in copies or copies[address].state == "dead" for address in self._held)
        ):
            self._recovered = True
            self._event(f"other workers have finished all of them ({since})")

    async def _verdict(self, broker: Broker) -> Verdict:
        """Read the journal again from its beginning, and compare it with what the processes recorded."""
        tally = Tally()
        await tally.follow(broker.journal)
        held: dict[Place, set[str]] = {place: set() for place in PLACES}
        for address, name in self._held.items():
            held[place_of(address)].add(name)
        if not self._held and not self._incidents:
            self._incidents.append("no worker could be killed while it held messages; ask for more --messages")
        return judge(
            read(self._play.folder.glob("*.ndjson")),
            tally,
            await stats_of(broker),
            {place: await letters_of(broker, place) for place in PLACES},
            held=held,
            incidents=self._incidents,
        )

    def _event(self, text: str) -> None:
        self._view.event(self.elapsed, text)


def place_of(address: Address) -> Place:
    """Return where a copy waits."""
    return Place(QueueName(address[0]), GroupName(address[1]))


async def stats_of(broker: Broker) -> dict[Place, GroupStats]:
    """Return the numbers of each place."""
    return {Place(queue.name, group.name): group for queue in await broker.stats() for group in queue.groups}


async def letters_of(broker: Broker, place: Place) -> list[str]:
    """Return the ids of all dead letters of a place."""
    ids: list[str] = []
    after = None
    while page := await broker.dead_letters.page(place.queue, group=place.group, after=after, limit=LETTERS_PAGE):
        ids += [letter.envelope.id for letter in page]
        after = page[-1].id
    return ids
