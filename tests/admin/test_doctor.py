"""The doctor's findings about a SQLite file, and how the command says them."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from godwit.admin.doctor import Finding, Severity, examine, worst
from godwit.admin.doctor.journals import Growth
from godwit.admin.doctor.journals import judge as judge_journal
from godwit.admin.doctor.sqlite import SqliteFacts, gather, judge
from godwit.brokers.contract import ShardEnds
from godwit.core.errors import BrokerUnavailable, StorageCorrupt, UnknownScheme
from godwit.core.queues import QueueSpec
from tests.conformance.harness import Harness, Q

SPAN = timedelta(milliseconds=20)
GIB = 1 << 30


@pytest.fixture
async def harness(tmp_path: Path) -> Harness:
    """Give a SQLite broker's file that holds a little, which no process uses."""
    harness = Harness("sqlite", tmp_path, live=True)
    await harness.start()
    await harness.declare("default")
    await harness.publish("a", "b", "c")
    await harness.stop()
    return harness


def file_of(tmp_path: Path) -> Path:
    return tmp_path / "godwit.db"


async def examined(tmp_path: Path) -> dict[str, Finding]:
    findings = await examine(f"sqlite:///{file_of(tmp_path)}", span=SPAN)
    return {finding.check: finding for finding in findings}


def facts_of(tmp_path: Path, **changes: object) -> dict[str, Finding]:
    """Judge a real file with some facts as they would be on another machine."""
    facts = msgspec.structs.replace(gather(file_of(tmp_path)), **changes)
    assert isinstance(facts, SqliteFacts)
    return {finding.check: finding for finding in judge(facts)}


async def test_a_healthy_file_gives_no_complaint(harness: Harness, tmp_path: Path) -> None:
    found = await examined(tmp_path)
    found.pop("file system")  # the test's own folder may well be fleeting
    assert worst(found.values()) in {Severity.OK, Severity.NOTE}, found
    assert "quick check in order" in found["health"].found
    assert "5 rows" in found[f"journal of {Q}#0"].found


async def test_a_journal_mode_changed_by_another_tool_is_noticed(harness: Harness, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file_of(tmp_path))) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    found = facts_of(tmp_path)["journal mode"]
    assert (found.severity, found.found) == (Severity.WARNING, "delete")


async def test_a_damaged_file_is_noticed_and_not_touched(harness: Harness, tmp_path: Path) -> None:
    file = file_of(tmp_path)
    with closing(sqlite3.connect(file)) as connection:
        root, page = (
            connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'broker_shared'").fetchone()[0],
            connection.execute("PRAGMA page_size").fetchone()[0],
        )
    with file.open("r+b") as raw:
        raw.seek((root - 1) * page)
        raw.write(b"\xff" * page)
    before = file.read_bytes()
    found = await examined(tmp_path)
    assert found["health"].severity is Severity.PROBLEM
    assert "damaged" in found["health"].found
    assert file.read_bytes() == before


async def test_a_log_that_is_never_emptied_is_noticed(harness: Harness, tmp_path: Path) -> None:
    await harness.start()
    try:
        os.truncate(tmp_path / "godwit.db-wal", 200 << 20)  # sparse: it takes no room
        assert facts_of(tmp_path)["write-ahead log"].severity is Severity.WARNING
    finally:
        os.truncate(tmp_path / "godwit.db-wal", 0)
        await harness.stop()


@pytest.mark.parametrize(
    ("check", "facts", "severity"),
    [
        ("version", {"version": (3, 30, 0)}, Severity.PROBLEM),
        ("version", {"version": (3, 40, 1)}, Severity.OK),
        ("health", {"checked": False}, Severity.NOTE),
        ("file system", {"file_system": "nfs4"}, Severity.PROBLEM),
        ("file system", {"file_system": "tmpfs"}, Severity.WARNING),
        ("file system", {"file_system": "ext4"}, Severity.OK),
        ("disk", {"disk_free": 50 << 20, "disk_total": 100 * GIB}, Severity.PROBLEM),
        ("disk", {"disk_free": 900 << 20, "disk_total": 100 * GIB}, Severity.WARNING),
        ("disk", {"disk_free": 2 * GIB, "disk_total": 100 * GIB}, Severity.OK),
        ("sync", {"sync_seconds": 0.2}, Severity.WARNING),
        ("sync", {"sync_seconds": None}, Severity.NOTE),
        ("room inside", {"file_bytes": GIB, "free_pages_bytes": 900 << 20}, Severity.NOTE),
        ("access", {"writable": False}, Severity.PROBLEM),
    ],
)
async def test_every_fact_of_another_machine_is_judged(
    harness: Harness, tmp_path: Path, check: str, facts: dict[str, object], severity: Severity
) -> None:
    found = facts_of(tmp_path, **facts)[check]
    assert found.severity is severity
    if severity in {Severity.WARNING, Severity.PROBLEM}:
        assert found.why.endswith(".")
        assert found.remedy.endswith(".")


def ends(**changes: int) -> ShardEnds:
    values = {"first_seq": 1, "last_seq": 1_000, "bytes": 100_000, "dropped": 0} | changes
    return ShardEnds(epoch="e", **values)


@pytest.mark.parametrize(
    ("rate", "severity", "words"),
    [
        (0.0, Severity.OK, "nothing is being written"),
        (1_000.0, Severity.OK, "holds 298.3 h"),
        (100_000.0, Severity.NOTE, "holds 3.0 h"),
        (1_000_000.0, Severity.WARNING, "holds 0.3 h"),
    ],
)
def test_a_journal_is_judged_by_the_hours_it_holds(rate: float, severity: Severity, words: str) -> None:
    found = judge_journal("orders#0", ends(), Growth(bytes_per_second=rate, watched=True), QueueSpec(name=Q))
    assert found.severity is severity
    assert words in found.found


def test_rows_that_a_reader_lost_are_told() -> None:
    found = judge_journal("orders#0", ends(dropped=7), None, QueueSpec(name=Q))
    assert found.severity is Severity.WARNING
    assert "7 rows were dropped" in found.found


async def test_the_present_rate_of_a_journal_is_watched(harness: Harness, tmp_path: Path) -> None:
    await harness.start()

    async def publish() -> None:
        for number in range(1_000_000):
            await harness.publish(f"m{number}")
            await asyncio.sleep(0.001)

    publishing = asyncio.create_task(publish())
    try:
        found = await examine(f"sqlite:///{file_of(tmp_path)}", span=timedelta(milliseconds=300))
        assert "/s now, holds" in found[-1].found
    finally:
        publishing.cancel()
        await asyncio.wait([publishing])
        await harness.stop()


async def test_what_is_no_database_or_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="no such file"):
        await examine(f"sqlite:///{tmp_path / 'none.db'}")
    assert not (tmp_path / "none.db").exists()
    (tmp_path / "text.db").write_text("no database, but long enough to be one")
    with pytest.raises(StorageCorrupt):
        await examine(f"sqlite:///{tmp_path / 'text.db'}")
    with pytest.raises(UnknownScheme, match="kafka"):
        await examine("kafka://host")
