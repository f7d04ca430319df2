"""The counters of groups, counted anew from the rows they stand for: whether they agree, and what mends them."""

from __future__ import annotations

import sqlite3
from typing import Final

from godwit.brokers.sqlite.layout.leases import blocks_of
from godwit.brokers.sqlite.layout.rows import GroupRow
from godwit.brokers.sqlite.layout.runs import SIZE, Runs
from godwit.brokers.sqlite.layout.step import SqliteStep
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.logs import get_logger
from godwit.core.names import GroupName, QueueName

COUNTERS: Final = (
    "ready", "explicit", "skips", "blocked", "delayed", "expiring", "leased", "dead", "bytes", "leased_bytes",
)  # fmt: skip
SELECT_WAITING: Final = (
    "SELECT count(*) FILTER (WHERE slot < 8), count(*) FILTER (WHERE slot = 9), count(*) FILTER (WHERE slot = 8), "
    "count(expiry), coalesce(sum(size), 0) FROM broker_waiting WHERE group_id = ?"
)
SELECT_WALK: Final = "SELECT last, n FROM broker_runs WHERE last > ? AND last < ? ORDER BY last"
SELECT_SKIPS: Final = "SELECT pos FROM broker_skips WHERE group_id = ?"
MANY: Final = 10_000
"""Copies without a row of their own up to which their bytes are added up in passing: each body has to be read."""

log = get_logger(__name__)
Disagreement = dict[str, tuple[int, int]]
"""By counter: what it says, and what was counted."""


def disagreement(work: SqliteStep, group: GroupRow, *, thorough: bool) -> Disagreement:
    """Count what a group holds; return the counters that say something else."""
    counted = _counted(work, group, thorough=thorough)
    return {name: (getattr(group, name), number) for name, number in counted.items() if getattr(group, name) != number}


def disagreements(work: SqliteStep) -> list[tuple[QueueName, GroupName, Disagreement]]:
    """Return the groups whose counters are wrong."""
    found = [
        (queue.name, group.name, disagreement(work, group, thorough=False))
        for queue in work.queues()
        for group in work.groups(queue).values()
    ]
    return [one for one in found if one[2]]


def mend(work: SqliteStep, name: QueueName, group_name: GroupName) -> bool:
    """Let the counters of a group say what is stored; say whether they did not."""
    queue = work.find_queue(name)
    group = work.groups(queue).get(group_name) if queue is not None else None
    wrong = disagreement(work, group, thorough=True) if group is not None else None
    if group is None or not wrong:
        return False
    for counter, (_, counted) in wrong.items():
        setattr(group, counter, counted)
    work.execute("INSERT INTO broker_mends VALUES (?, ?, ?)", (name, group_name, work.clock.now_ms()))
    log.warning("counters disagreed with what is stored, and were mended", queue=name, group=group_name, counters=wrong)
    return True


def examined(connection: sqlite3.Connection) -> tuple[list[tuple[QueueName, GroupName, Disagreement]], int]:
    """Return the groups whose counters are wrong, and how often counters were mended, of a file only read."""
    work = SqliteStep(connection, Runs(connection), SYSTEM_CLOCK, {})
    connection.execute("BEGIN")
    try:
        known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'broker_mends'").fetchone()[0]
        mended = connection.execute("SELECT count(*) FROM broker_mends").fetchone()[0] if known else 0
        return disagreements(work), int(mended)
    finally:
        connection.execute("COMMIT")


def _counted(work: SqliteStep, group: GroupRow, *, thorough: bool) -> dict[str, int]:
    explicit, blocked, delayed, expiring, size = work.execute(SELECT_WAITING, (group.id,)).fetchone()
    skips = {pos for (pos,) in work.execute(SELECT_SKIPS, (group.id,))}
    leases = [lease for block in blocks_of(work, group) for lease in block.open.values()]
    leased_bytes = sum(lease.size for lease in leases)
    (dead,) = work.execute("SELECT count(*) FROM broker_letters WHERE group_id = ?", (group.id,)).fetchone()
    runs = _walk(work, group)
    walked = sum(last - first + 1 for first, last, _ in runs) - len(skips)
    numbers = (explicit + walked, explicit, len(skips), blocked, delayed, expiring, len(leases), dead)
    counted = dict(zip(COUNTERS, (*numbers, 0, leased_bytes), strict=True))
    if thorough or walked <= MANY:
        counted["bytes"] = size + leased_bytes + sum(_bytes(work, run, skips) for run in runs)
    else:
        del counted["bytes"]
    return counted


def _walk(work: SqliteStep, group: GroupRow) -> list[tuple[int, int, int]]:
    """Return the copies that have no row of their own: the first and the last place in each run, and its length."""
    if not group.queue.turn:
        return []
    runs: list[tuple[int, int, int]] = []
    for lane in range(group.queue.spec.lanes):
        cursor = group.queue.floor(lane) + group.cursors[lane]
        for last, n in work.execute(SELECT_WALK, (cursor, group.queue.floor(lane + 1))):
            runs.append((max(cursor, last - n) + 1, last, n))
    return runs


def _bytes(work: SqliteStep, run: tuple[int, int, int], skips: set[int]) -> int:
    first, last, n = run
    messages = work.runs.read(last)
    places = range(last - n + 1, last + 1)
    sizes = zip(places, messages, strict=True)
    return sum(int(message[SIZE]) for place, message in sizes if place >= first and place not in skips)
