from __future__ import annotations

import asyncio
import shutil
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK, Clock, ManualClock
from godwit.core.errors import JournalLost
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.pipeline.audit.verdict import AuditResult, AuditVerdict, ChainCheck
from godwit.pipeline.jobs.audit import AuditSettings, audit_in_session, verify_chain
from godwit.pipeline.jobs.run import RunSettings
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.journals import WrittenJournal, traffic, url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place:
    """A broker's file, the store in it or in another one, and a lake beside it."""

    def __init__(self, spark: SparkSession, folder: Path, store: Path | None = None) -> None:
        self.spark, self.path = spark, folder / "godwit.db"
        self.settings = RunSettings(
            broker_url=url_of(self.path),
            store_url=url_of(store or self.path),
            lake=str(folder / "lake"),
            parts=("archive", "audit"),
            once=True,
        )

    def audit(self, *, live: bool = True, clock: Clock = SYSTEM_CLOCK, accept_loss: bool = False) -> AuditResult:
        settings = AuditSettings(run=msgspec.structs.replace(self.settings, accept_loss=accept_loss), live=live)
        with Connections(self.settings.broker_url, self.settings.store_url) as connections:
            return audit_in_session(self.spark, connections, settings, clock=clock)

    def verify(self) -> ChainCheck:
        with Connections(self.settings.broker_url, self.settings.store_url) as connections:
            return verify_chain(connections, "default")


@pytest.fixture
def place(spark: SparkSession, tmp_path: Path) -> Place:
    return Place(spark, tmp_path)


def test_a_quiet_file_is_clean_and_the_next_audit_goes_on(place: Place) -> None:
    traffic(place.path, messages=60)
    first = place.audit()
    assert first.verdict is AuditVerdict.CLEAN
    assert first.rows > 240
    assert sum(first.counts.values()) == 0
    traffic(place.path, "letters", messages=20)
    leased(place.path)
    second = place.audit()
    assert second.verdict is AuditVerdict.CLEAN
    assert 0 < second.rows < first.rows
    assert second.open == held(place.path) > first.open + 3


def held(path: Path) -> int:
    """Count what the broker has, dead letters included."""

    async def count() -> int:
        async with SqliteBroker(path) as broker:
            return sum(group.depth + group.dead for queue in await broker.stats() for group in queue.groups)

    return asyncio.run(count())


def leased(path: Path) -> None:
    """Leave three messages leased by a worker that is gone."""

    async def play() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(QueueSpec(name="slow"), [GroupSpec(name="default")])
            await broker.publish(seal_all([Message(id=f"s{number}", queue="slow") for number in range(3)]))
            await broker.pull("slow", "default", worker="gone", limit=3, lease=timedelta(seconds=30))

    asyncio.run(play())


def test_a_message_that_vanished_from_the_file_is_lost(place: Place) -> None:
    leased(place.path)
    assert place.audit().verdict is AuditVerdict.CLEAN
    with sqlite3.connect(place.path) as connection:
        (blocks,) = connection.execute("SELECT count(*) FROM broker_leases").fetchone()
        connection.execute("DELETE FROM broker_leases")
    assert blocks
    damaged = place.audit()
    assert damaged.verdict is AuditVerdict.WRONG
    assert damaged.counts["lost"] == 3
    assert {finding.message_id for finding in damaged.findings} == {"s0", "s1", "s2"}


def test_a_lease_long_past_is_stuck(place: Place) -> None:
    leased(place.path)
    later = ManualClock(SYSTEM_CLOCK.now_ms() + 3_600_000)
    late = place.audit(clock=later)
    assert late.verdict is AuditVerdict.WRONG
    assert late.counts["stuck"] == 3


def test_a_trimmed_journal_is_unknown_and_never_clean(place: Place) -> None:
    """Old messages wait, and rows of copies that were not followed are no findings; those of known copies are."""
    traffic(place.path, messages=40)
    trim(place.path, "orders", 50)
    found = place.audit(live=False)
    assert found.verdict is AuditVerdict.UNKNOWN
    assert "were gone before they were followed" in str(found.unknown[0])
    assert (found.unknown[0].first_seq, found.coverage.shards["orders#0"].seq) == (1, last_seq(place.path, "orders"))
    waiting(place.path, "orders", 300, group="billing")
    old = place.audit()
    assert (old.verdict, sum(old.counts.values()), old.coverage.level) == (AuditVerdict.UNKNOWN, 0, 1)
    copy = {"message_id": "w299", "publish_seq": 340, "attempt": 1}
    written, at_ms = WrittenJournal(place.path), SYSTEM_CLOCK.now_ms()
    for _ in range(2):
        for event in (Event.DELIVERED, Event.ACKED):
            row = [copy.get(name) for name in LAYOUTS[event]]
            written.append([("orders", at_ms, event, "billing", 1, [row])])
        doubled = place.audit(live=False)
    assert [(one.kind, one.what) for one in doubled.findings] == [("duplicated", "deliver of a copy that was unborn")]


def trim(path: Path, queue: str, rows: int) -> None:
    """Let the journal of a queue forget its first rows, and more as whole chunks."""

    async def play() -> None:
        async with SqliteBroker(path) as broker:
            ends = (await broker.journal.shards())[shard_name(queue)]
            await broker.journal.forget("pipeline default")
            await broker.declare(QueueSpec(name=queue, journal_keep=timedelta(0)))
            position = Position(ends.epoch, ends.first_seq + rows)
            await broker.journal.commit("test", shard_name(queue), position)
            assert await broker.journal.trim() > 0

    asyncio.run(play())


def last_seq(path: Path, queue: str) -> int:
    async def ask() -> int:
        async with SqliteBroker(path) as broker:
            return (await broker.journal.shards())[shard_name(queue)].last_seq

    return asyncio.run(ask())


def waiting(path: Path, queue: str, messages: int, *, group: str = "default", name: str = "w") -> None:
    """Publish messages and pull none."""

    async def play() -> None:
        async with SqliteBroker(path) as broker:
            await broker.declare(QueueSpec(name=queue), [GroupSpec(name=group)])
            await broker.publish(seal_all([Message(id=f"{name}{number}", queue=queue) for number in range(messages)]))

    asyncio.run(play())


def test_what_the_broker_lost_with_its_journal_is_never_clean(spark: SparkSession, tmp_path: Path) -> None:
    """One queue is lost beside another, then everything; then new messages take the places of the lost ones."""
    place = Place(spark, tmp_path, store=tmp_path / "store.db")
    waiting(place.path, "kept", 50)
    waiting(place.path, "gone", 20)
    whole = place.audit()
    assert (whole.verdict, whole.open, whole.coverage.copies, whole.coverage.compared) == (
        AuditVerdict.CLEAN,
        70,
        70,
        2,
    )
    WrittenJournal(place.path).vanish("gone")
    with sqlite3.connect(place.path) as connection:
        connection.execute("DELETE FROM broker_queues WHERE name = 'gone'")
    one = place.audit()
    assert (one.verdict, one.counts["lost"]) == (AuditVerdict.UNKNOWN, 0)
    assert [(span.shard, span.last_seq, span.copies) for span in one.unknown] == [("gone#0", None, 20)]
    place.path.unlink()
    flushed = place.audit()
    assert flushed.verdict is AuditVerdict.UNKNOWN
    assert {(span.shard, span.copies) for span in flushed.unknown} == {("gone#0", 20), ("kept#0", 50)}
    waiting(place.path, "kept", 50, name="other")
    with pytest.raises(JournalLost, match="kept#0"):
        place.audit()
    anew = place.audit(accept_loss=True)
    assert (anew.verdict, anew.open, sum(anew.counts.values())) == (AuditVerdict.UNKNOWN, 120, 0)
    assert {(span.shard, span.copies) for span in anew.unknown} == {("gone#0", 20), ("kept#0", 50)}


@pytest.mark.parametrize("grown", [0, 40])
def test_a_restored_backup_is_never_clean_also_when_it_grew_past_what_was_lost(
    spark: SparkSession, tmp_path: Path, grown: int
) -> None:
    place = Place(spark, tmp_path, store=tmp_path / "store.db")
    waiting(place.path, "orders", 50)
    shutil.copy(place.path, tmp_path / "backup.db")
    waiting(place.path, "orders", 70)  # 50 of them are duplicates
    assert place.audit().open == 70
    for file in (place.path, *tmp_path.glob("godwit.db-*")):
        file.unlink()
    shutil.copy(tmp_path / "backup.db", place.path)
    if grown:
        waiting(place.path, "orders", 50 + grown)
    with pytest.raises(JournalLost, match="was set back"):
        place.audit()
    restored = place.audit(accept_loss=True)
    assert (restored.verdict, sum(restored.counts.values())) == (AuditVerdict.UNKNOWN, 0)
    assert sum(span.copies for span in restored.unknown) == (0 if grown else 20)
    assert "~" in restored.unknown[0].epoch
    assert place.audit(accept_loss=True).rows == 0


def test_what_lies_in_a_gap_is_unknown_until_the_listing_tells(place: Place) -> None:
    waiting(place.path, "orders", 50)
    assert place.audit().verdict is AuditVerdict.CLEAN

    async def handle() -> None:
        async with SqliteBroker(place.path) as broker:
            for deliveries in [
                await broker.pull("orders", "default", worker="w", limit=30, lease=timedelta(minutes=1))
            ]:
                await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])

    asyncio.run(handle())
    trim(place.path, "orders", last_seq(place.path, "orders") - 1)
    waiting(place.path, "orders", 60)
    found = place.audit(accept_loss=True)
    assert (found.verdict, sum(found.counts.values())) == (AuditVerdict.UNKNOWN, 0)
    assert [span.copies for span in found.unknown] == [30]
    assert "30 copies that were open before ended there or are lost" in str(found.unknown[0])


def test_a_purge_and_a_removal_end_what_is_leased_or_dead_as_well(place: Place) -> None:
    leased(place.path)

    async def remove() -> None:
        async with SqliteBroker(place.path) as broker:
            assert await broker.purge("slow") == 0
            await broker.purge("slow", "default")
            await broker.remove("slow")

    asyncio.run(remove())
    found = place.audit()
    assert (found.verdict, found.open) == (AuditVerdict.CLEAN, 0)


def test_verdicts_are_chained(place: Place) -> None:
    traffic(place.path, messages=5)
    for _ in range(3):
        result = place.audit()
    assert result.number == 3
    chain = place.verify()
    assert (chain.verdicts, chain.hash, chain.problem) == (3, result.hash, None)
    with sqlite3.connect(place.path) as connection:
        (body,) = connection.execute("SELECT body FROM audit_verdict WHERE number = 2").fetchone()
        connection.execute("UPDATE audit_verdict SET body = ? WHERE number = 2", (body.replace(b"clean", b"wrong"),))
    chain = place.verify()
    assert (chain.verdicts, chain.problem is not None) == (1, True)
    assert msgspec.json.decode(body)["coverage"]["shards"]["orders#0"]["seq"] == last_seq(place.path, "orders")


def test_a_copy_that_arrives_a_second_time_is_found_though_its_second_life_ends_well(place: Place) -> None:
    written = WrittenJournal(place.path)
    written.declare("orders")
    at_ms = SYSTEM_CLOCK.now_ms()

    def happens(*events: Event) -> None:
        known = {"message_id": "m7", "publish_seq": 7, "lane": 1, "ready_at": at_ms, "attempt": 1, "wait_ms": 0}
        rows = [(event, [known.get(name) for name in LAYOUTS[event]]) for event in events]
        written.append([("orders", at_ms, event, "default", 1, [values]) for event, values in rows])

    happens(Event.ENQUEUED)
    assert place.audit(live=False).counts["duplicated"] == 0
    happens(Event.ENQUEUED, Event.DELIVERED, Event.ACKED)
    found = place.audit(live=False)
    assert [(one.publish_seq, one.what) for one in found.findings] == [(7, "arrive of a copy that was waiting")]
    assert found.open == 0
