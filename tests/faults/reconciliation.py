"""Judging a broker from outside: its journal against its state, and both against what its users wrote down."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from godwit.brokers.contract import GroupStats
from tests.conformance.harness import Harness, Q, Row

DATABASE = "godwit.db"
TOLD = 3
"""How many repetitions without a death are shown in full."""


def url_of(place: Path) -> str:
    """Return the URL of the SQLite broker in a folder."""
    return f"sqlite:///{place / DATABASE}"


def integrity(database: Path) -> str:
    """Return what SQLite says of a file: `ok`, or what is wrong with it."""
    with closing(sqlite3.connect(database)) as connection:
        return "\n".join(row[0] for row in connection.execute("PRAGMA integrity_check"))


async def consistent(place: Path) -> list[Row]:
    """Open the broker at `place`, show that everything it says agrees, and return its journal."""
    assert integrity(place / DATABASE) == "ok"
    harness = Harness("sqlite", place, live=True)
    await harness.start()
    try:
        return await agreeing(harness)
    finally:
        await harness.stop()


async def agreeing(harness: Harness) -> list[Row]:
    """Show that journal, snapshot and numbers of a quiet broker agree; return the journal."""
    rows = await harness.rows()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert all(one["at"] <= other["at"] for one, other in pairwise(rows))
    snapshot = await harness.broker.journal.snapshot(Q)
    live = {copy.address: copy for copy in snapshot.copies}
    assert len(live) == len(snapshot.copies)
    assert await harness.projection() == live
    assert snapshot.position.seq == (rows[-1]["seq"] if rows else 0)
    sizes = {(row["group"], row["publish_seq"]): row["size"] for row in rows if "size" in row}
    for stats in (await harness.queue_stats()).groups:
        mine = [copy for copy in live.values() if copy.group == stats.name]
        states = Counter(copy.state for copy in mine)
        waiting = stats.ready + stats.delayed + stats.blocked
        assert (waiting, stats.leased, stats.dead) == (states["waiting"], states["leased"], states["dead"])
        open_bytes = sum(sizes[copy.group, copy.publish_seq] for copy in mine if copy.state != "dead")
        leased_bytes = sum(sizes[copy.group, copy.publish_seq] for copy in mine if copy.state == "leased")
        assert (stats.bytes, stats.leased_bytes) == (open_bytes, leased_bytes)
    return rows


def ids(rows: Iterable[Row], event: str) -> list[str]:
    """Return the ids of all rows of one event, in order."""
    return [row["message_id"] for row in rows if row["event"] == event]


def drained(stats: GroupStats) -> bool:
    """Say whether nothing waits or is leased."""
    return stats.depth == 0


@dataclass(frozen=True, kw_only=True)
class Reconciliation:
    """What publishers and workers wrote down, against the journal."""

    accepted: int
    done: int
    lost: int
    repeated: int
    held: int
    unexplained: int
    out_of_order: int
    why: tuple[str, ...] = ()
    """What records and journal say of repetitions that no death explains."""

    def verify(self) -> None:
        """Fail unless nothing was lost, repeated without a death, or overtaken."""
        assert (self.lost, self.unexplained, self.out_of_order) == (0, 0, 0), self
        assert self.repeated <= self.held, self
        assert self.done >= self.accepted, self


def reconcile(
    rows: Sequence[Row], published: Iterable[list[Any]], worked: dict[str, list[list[Any]]], victims: set[str]
) -> Reconciliation:
    """Compare records with the journal of a queue that was drained; `worked` and `victims` go by worker.

    A repetition is explained when every earlier delivery of the message was to a worker that was killed before it wrote
    down to have settled it, or over whose settlement the broker went away.
    """
    accepted = {line[1] for line in published if line[0] == "accepted"}
    arrived, acked = ids(rows, "enqueued"), ids(rows, "acked")
    assert len(set(arrived)) == len(arrived), "a message was stored twice"
    assert len(set(acked)) == len(acked), "a message was done twice"
    assert accepted <= set(arrived), "the journal does not know an accepted message"
    deliveries: Counter[str] = Counter()
    dropped: Counter[str] = Counter()
    held = 0
    for worker, lines in worked.items():
        given = Counter(line[1] for line in lines if line[0] == "delivered")
        settled = Counter(line[1] for line in lines if line[0] == "settled")
        deliveries += given
        assert set(settled) <= set(acked), "a worker was told that its ack counted, the journal does not say so"
        unsure = Counter(line[1] for line in lines if line[0] == "unsure")
        open_at_the_end = given - settled if worker in victims else unsure
        dropped += open_at_the_end
        held += open_at_the_end.total()
    odd = [name for name, count in deliveries.items() if count - 1 > dropped[name]]
    return Reconciliation(
        accepted=len(accepted),
        done=len(acked),
        lost=len(accepted - set(acked)) + len(accepted - set(deliveries)),
        repeated=sum(count - 1 for count in deliveries.values()),
        held=held,
        unexplained=sum(max(0, count - 1 - dropped[name]) for name, count in deliveries.items()),
        out_of_order=_overtaken(worked.values()),
        why=_stories(odd[:TOLD], rows, worked),
    )


def _stories(names: Sequence[str], rows: Sequence[Row], worked: dict[str, list[list[Any]]]) -> tuple[str, ...]:
    """Tell what happened to some messages: what the journal has, and what workers wrote down."""
    told = {
        name: [f"{row['event']} {row.get('worker') or ''}" for row in rows if row.get("message_id") == name]
        for name in names
    }
    seen = {
        name: [f"{worker} {line[0]}" for worker, lines in worked.items() for line in lines if line[1] == name]
        for name in names
    }
    return tuple(f"{name}: journal {', '.join(told[name])}; workers {', '.join(seen[name])}" for name in names)


def _overtaken(worked: Iterable[list[list[Any]]]) -> int:
    """Count first deliveries that came after that of a later message with the same key."""
    first: dict[str, tuple[int, str]] = {}
    for lines in worked:
        for line in lines:
            if line[0] == "delivered" and line[3] is not None:
                _, name, _, key, at = line
                first[name] = min(first.get(name, (at, key)), (at, key))
    by_key: dict[str, list[tuple[int, str]]] = defaultdict(list)
    for name, (at, key) in first.items():
        by_key[key].append((at, name))
    return sum(earlier > later for found in by_key.values() for (_, earlier), (_, later) in pairwise(sorted(found)))


def overlaps(intervals: Iterable[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return the intervals (id, from, to) that begin before another one of the same id has ended."""
    found = []
    ends: dict[str, int] = {}
    for name, began, ended in sorted(intervals, key=lambda interval: interval[1]):
        if began < ends.get(name, 0):
            found.append((name, began, ended))
        ends[name] = max(ended, ends.get(name, 0))
    return found
