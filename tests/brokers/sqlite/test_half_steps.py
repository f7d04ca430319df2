"""Every step is whole or did not happen: an error is injected at each of its statements, and all counters agree."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, cast

import pytest

from godwit.admin.doctor import examine
from godwit.brokers.contract import Ack, GiveUp, HandBack, LetterId, Nack, Postpone
from godwit.brokers.sqlite import SqliteBroker
from godwit.brokers.sqlite.engine import SqliteEngine
from godwit.brokers.sqlite.layout.file import open_for_writing
from godwit.brokers.sqlite.layout.recount import disagreements
from godwit.brokers.sqlite.portions import Maintained, Stage
from godwit.core.clock import ManualClock
from godwit.core.failures.failure import FailureKind
from godwit.core.names import AckId
from godwit.core.queues import GroupSpec, QueueSpec
from tests.brokers.sqlite.files import G, Q, declared, envelope, envelopes, pull

NOW_MS: Final = ManualClock().now_ms()
LEASE_MS: Final = 60_000
DEAD: Final = "dead"


class InjectedError(Exception):
    """What the n-th statement raises."""


class Failing:
    """A connection that raises at one of the statements that change something."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.left = -1
        self.count = 0

    def _counted(self, statement: str) -> None:
        if statement.lstrip().startswith(("SELECT", "PRAGMA")):
            return
        self.count += 1
        self.left -= 1
        if self.left == 0:
            raise InjectedError(statement)

    def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        self._counted(statement)
        return self.connection.execute(statement, *values)

    def executemany(self, statement: str, rows: Any) -> sqlite3.Cursor:
        self._counted(statement)
        return self.connection.executemany(statement, rows)


@dataclass
class Opened:
    """A file opened by an engine whose statements may fail."""

    failing: Failing
    engine: SqliteEngine
    clock: ManualClock
    held: list[AckId]

    def run(self, step: Callable[[Opened], object], *, fail_at: int = -1) -> bool:
        """Carry out a step in a transaction as the writer does; say whether it came to its end."""
        execute = self.failing.connection.execute
        execute("BEGIN IMMEDIATE")
        execute("SAVEPOINT call")
        self.failing.left, self.failing.count = fail_at, 0
        try:
            step(self)
        except InjectedError:
            self.engine.rolled_back()
            execute("ROLLBACK TO call")
            return False
        finally:
            self.failing.left = -1
            execute("RELEASE call")
            execute("COMMIT")
        return True

    def stored(self) -> list[Any]:
        """Return all that the file holds."""
        tables = [
            name
            for (name,) in self.failing.connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE '%STRICT%'")
        ]
        return [self.failing.connection.execute(f"SELECT * FROM {name}").fetchall() for name in sorted(tables)]

    def agrees(self) -> bool:
        """Say whether all counters agree with what is stored."""
        return disagreements(self.engine.work()) == []


def opened(path: Path, held: list[AckId]) -> Opened:
    clock = ManualClock(NOW_MS)
    failing = Failing(open_for_writing(path))
    return Opened(failing, SqliteEngine(cast("sqlite3.Connection", failing), clock, lambda _: None), clock, held)


def prepared(path: Path) -> list[AckId]:
    """Make a file with something of everything; return the ack ids that are held."""
    file = opened(path, [])

    def fill(file: Opened) -> None:
        engine = file.engine
        engine.declare(QueueSpec(name=DEAD), [GroupSpec(name=G)])
        ordered = GroupSpec(name="ordered", message_ordering=True)
        engine.declare(QueueSpec(name=Q, dead_letter_queue=DEAD), [GroupSpec(name=G, max_crashes=2), ordered])
        engine.publish(envelopes(12))
        engine.publish([envelope(f"k{n}", ordering_key="k") for n in range(3)])
        engine.publish([envelope(f"d{n}", deliver_at_ms=NOW_MS + 1_000) for n in range(3)])
        engine.publish([envelope(f"e{n}", expires_at_ms=NOW_MS + 1_000) for n in range(3)])
        found = engine.pull(Q, G, worker="w", limit=8, lease_ms=LEASE_MS) or []
        engine.settle([GiveUp(found[0].ack_id, FailureKind.PERMANENT), Nack(found[1].ack_id), Ack(found[2].ack_id)])
        file.held = [one.ack_id for one in found[3:]]

    assert file.run(fill)
    assert file.agrees()
    file.failing.connection.close()
    return file.held


def settle_each_way(file: Opened) -> object:
    one, two, three, four, five = file.held
    later = timedelta(minutes=1)
    settlements = (
        Ack(one),
        Nack(two, later),
        GiveUp(three, FailureKind.PERMANENT),
        HandBack(four),
        Postpone(five, later),
    )
    return file.engine.settle(settlements)


def maintain(file: Opened) -> object:
    file.clock.advance(timedelta(milliseconds=2 * LEASE_MS))
    place = Maintained(until_ms=file.clock.now_ms())
    while place.stage is not Stage.DONE:
        place = file.engine.maintain(place)
    return place


STEPS: Final[dict[str, Callable[[Opened], object]]] = {
    "declare": lambda file: file.engine.declare(QueueSpec(name="new"), [GroupSpec(name=G), GroupSpec(name="two")]),
    "publish": lambda file: file.engine.publish(envelopes(5, "new")),
    "publish what was there": lambda file: file.engine.publish([*envelopes(3), envelope("new")]),
    "publish of each kind": lambda file: file.engine.publish(
        [
            envelope("plain"),
            envelope("keyed", ordering_key="k"),
            envelope("later", deliver_at_ms=NOW_MS + 5),
            envelope("ends", expires_at_ms=NOW_MS + 5),
            envelope("one", group="ordered"),
        ]
    ),
    "pull": lambda file: file.engine.pull(Q, G, worker="w", limit=5, lease_ms=LEASE_MS),
    "pull of a key": lambda file: file.engine.pull(Q, "ordered", worker="w", limit=20, lease_ms=LEASE_MS),
    "settle": settle_each_way,
    "extend": lambda file: file.engine.extend(file.held, 2 * LEASE_MS),
    "cancel": lambda file: file.engine.cancel(Q, "m-9"),
    "cancel of a head": lambda file: file.engine.cancel(Q, "k0"),
    "purge": lambda file: file.engine.purge(Q),
    "remove a group": lambda file: file.engine.remove(Q, G),
    "remove": lambda file: file.engine.remove(Q),
    "replay": lambda file: file.engine.replay([LetterId(f"{Q}#0#{G}#{1:012d}")]),
    "discard": lambda file: file.engine.discard([LetterId(f"{Q}#0#{G}#{1:012d}")]),
    "maintain": maintain,
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_that_fails_at_any_statement_leaves_nothing_behind_and_works_then(name: str, tmp_path: Path) -> None:
    held = prepared(tmp_path / "template.db")
    statements, at = 1, 0
    while at < statements:
        at += 1
        path = tmp_path / f"{at}.db"
        shutil.copy(tmp_path / "template.db", path)
        file = opened(path, held)
        before = file.stored()
        assert not file.run(STEPS[name], fail_at=at)
        assert file.stored() == before
        assert file.agrees()
        file.clock.advance(timedelta(milliseconds=NOW_MS - file.clock.now_ms()))
        assert file.run(STEPS[name])
        statements = file.failing.count
        assert file.agrees()
        assert file.stored() != before
        file.failing.connection.close()
        path.unlink()
    assert statements > 0


async def counters_finding(path: Path) -> str:
    findings = await examine(f"sqlite:///{path}", span=timedelta(milliseconds=10))
    return next(finding.found for finding in findings if finding.check == "counters")


async def test_counters_that_disagree_with_what_is_stored_are_shown_and_mended(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    broker = await declared(path)
    await broker.publish(envelopes(5))
    await pull(broker, 1)
    await broker.close()
    with closing(sqlite3.connect(path)) as file, file:
        file.execute("UPDATE broker_groups SET ready = ready - 4, bytes = bytes + 7, leased = 0")
    findings = {
        finding.check: finding for finding in await examine(f"sqlite:///{path}", span=timedelta(milliseconds=10))
    }
    assert "ready 0 (counted: 4)" in findings["counters"].found
    assert "leased 0 (counted: 1)" in findings["counters"].found
    async with SqliteBroker(path) as mending:
        assert await pull(mending) == []
        await mending.maintain()
        assert len(await pull(mending)) == 4
        ((group,),) = [queue.groups for queue in await mending.stats()]
        assert (group.leased, group.bytes) == (5, 100)
    findings = {
        finding.check: finding for finding in await examine(f"sqlite:///{path}", span=timedelta(milliseconds=10))
    }
    assert findings["counters"].found == "agree with what is stored; mended 1 times"
