from __future__ import annotations

import asyncio
import sqlite3
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK, Clock, ManualClock, from_ms
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.pipeline.audit.part import FINDINGS_SCHEMA, AuditScope, _findings
from godwit.pipeline.jobs.audit import AuditResult, AuditSettings, AuditVerdict, audit_in_session
from godwit.pipeline.jobs.run import RunSettings
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.journals import WrittenJournal, traffic, url_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Place:
    """A broker's file, the store in it, and a lake beside it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.path = spark, folder / "godwit.db"
        self.settings = RunSettings(
            broker_url=url_of(self.path),
            store_url=url_of(self.path),
            lake=str(folder / "lake"),
            parts=("archive", "audit"),
            once=True,
        )

    def audit(self, *, live: bool = True, clock: Clock = SYSTEM_CLOCK) -> AuditResult:
        with Connections(self.settings.broker_url, self.settings.store_url) as connections:
            return audit_in_session(self.spark, connections, AuditSettings(run=self.settings, live=live), clock=clock)


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
    traffic(place.path, messages=40)

    async def trim() -> None:
        async with SqliteBroker(place.path) as broker:
            shard = shard_name("orders")
            ends = (await broker.journal.shards())[shard]
            await broker.declare(
                QueueSpec(name="orders", journal_keep=timedelta(0)), [GroupSpec(name="billing"), GroupSpec(name="mail")]
            )
            await broker.journal.commit("test", shard, Position(ends.epoch, ends.first_seq + 50))
            assert await broker.journal.trim() > 0

    asyncio.run(trim())
    found = place.audit(live=False)
    assert found.verdict is AuditVerdict.UNKNOWN
    assert "what came before is gone" in found.unknown[0]


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


def test_what_is_excused_because_the_beginning_is_missing_did_not_arrive_since(spark: SparkSession) -> None:
    now = from_ms(SYSTEM_CLOCK.now_ms())
    found = spark.createDataFrame(
        [
            ("duplicated", shard, "orders", "default", number, f"m{number}", now, f"ack of a copy that was {state}")
            for shard, number, state in (
                ("cut#0", 1, "unborn"), ("cut#0", 2, "unborn"), ("cut#0", 3, "ended"), ("whole#0", 1, "unborn"),
            )
        ],
        FINDINGS_SCHEMA,
    )  # fmt: skip
    rows = spark.createDataFrame(
        [("cut#0", "default", 2, "enqueued"), ("cut#0", "other", 1, "enqueued"), ("cut#0", "default", 1, "acked")],
        "shard string, group string, publish_seq long, event string",
    )
    seen = frozenset(AuditScope(shard, None, False, "e", first) for shard, first in (("cut#0", 9), ("whole#0", 1)))
    kept = _findings(found, seen, rows, now).collect()
    assert {(row.shard, row.publish_seq) for row in kept} == {("cut#0", 2), ("cut#0", 3), ("whole#0", 1)}
