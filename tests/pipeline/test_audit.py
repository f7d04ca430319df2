from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from godwit.brokers.contract import Ack
from godwit.core.clock import from_ms
from godwit.core.envelope import seal
from godwit.core.journal import Event
from godwit.core.message import Message
from godwit.core.projection import Projection
from godwit.pipeline.transforms import audit
from tests.pipeline.histories import LEASE, ORDERED, PLAIN, QUEUE, SHARD, History, Row, journal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Copy = tuple[str, int]


def ordered(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([(SHARD, ORDERED)], "shard string, group string")


def audited(
    spark: SparkSession, rows: list[Row], before: DataFrame | None = None, *, removals: bool = True
) -> audit.Audit:
    found = audit.audited(journal(spark, rows).select(*audit.COLUMNS), before, ordered(spark), removals=removals)
    return found._replace(open=kept(spark, found.open))


def kept(spark: SparkSession, found: DataFrame) -> DataFrame:
    """Return a table with no past, as one that was written and read again."""
    return spark.createDataFrame(found.collect(), audit.OPEN)


def copies(found: DataFrame) -> dict[Copy, str]:
    return {(row.group, row.publish_seq): row.state for row in found.collect()}


def kinds(found: DataFrame) -> set[tuple[str, str, int]]:
    return {(row.kind, row.group, row.publish_seq) for row in found.collect()}


def live(rows: list[Row]) -> dict[Copy, str]:
    projection = Projection()
    for row in rows:
        projection.apply({**row, "event": Event(row["event"])})
    return {(copy.group, copy.publish_seq): copy.state for copy in projection.copies.values()}


async def history(seed: int, steps: int = 400) -> History:
    past = History(seed)
    await past.begin()
    await past.go_on(steps)
    return past


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_real_history_has_no_findings_and_ends_with_what_the_broker_holds(
    spark: SparkSession, seed: int
) -> None:
    past = await history(seed)
    rows = await past.rows()
    found = audited(spark, rows)
    assert kinds(found.findings) == set()
    assert copies(found.open) == live(rows)
    snapshot = await past.snapshot()
    listing = spark.createDataFrame(
        [(SHARD, QUEUE, copy.group, copy.publish_seq, copy.message_id) for copy in snapshot.copies],
        "shard string, queue string, group string, publish_seq long, message_id string",
    )
    listed = spark.createDataFrame([(SHARD, snapshot.position.seq)], "shard string, seq long")
    assert kinds(audit.lost(found.open, listing, listed)) == set()
    assert kinds(audit.unrecorded(found.open, listing)) == set()
    assert len(copies(found.open)) > 20
    assert set(copies(found.open).values()) == {"waiting", "leased", "dead"}


async def test_an_audit_goes_on_where_the_last_one_ended(spark: SparkSession) -> None:
    past = await history(3)
    first = await past.rows()
    carried = audited(spark, first).open
    await past.go_on(300)
    found = audited(spark, await past.rows(after=first[-1]["seq"]), carried)
    whole = audited(spark, await past.rows())
    assert kinds(found.findings) == set()
    assert {tuple(row) for row in found.open.collect()} == {tuple(row) for row in whole.open.collect()}


async def test_a_copy_missing_from_the_listing_is_lost_and_one_too_many_is_doubled(spark: SparkSession) -> None:
    past = await history(4)
    found = audited(spark, await past.rows())
    there = sorted(copies(found.open))
    gone, extra = there[0], (PLAIN, 10**9)
    listing = spark.createDataFrame(
        [(SHARD, QUEUE, group, number, "id") for group, number in [*there[1:], extra]],
        "shard string, queue string, group string, publish_seq long, message_id string",
    )
    born = {(row.group, row.publish_seq): row.born for row in found.open.collect()}
    listed = spark.createDataFrame([(SHARD, born[gone])], "shard string, seq long")
    earlier = spark.createDataFrame([(SHARD, born[gone] - 1)], "shard string, seq long")
    assert kinds(audit.lost(found.open, listing, listed)) == {("lost", *gone)}
    assert kinds(audit.lost(found.open, listing, earlier)) == set()
    assert kinds(audit.unrecorded(found.open, listing)) == {("duplicated", *extra)}


def planted(rows: list[Row], row: Row, **changes: Any) -> list[Row]:
    """Return the history with one more row at its end."""
    last = rows[-1]
    return [*rows, {**row, "seq": last["seq"] + 1, "at": last["at"], **changes}]


async def test_a_doubled_end_and_a_second_lease_are_found(spark: SparkSession) -> None:
    past = await history(5)
    rows = await past.rows()
    acked = next(row for row in rows if row["event"] == "acked")
    twice = audited(spark, planted(rows, acked))
    assert kinds(twice.findings) == {("duplicated", acked["group"], acked["publish_seq"])}
    held = next(copy for copy, state in live(rows).items() if state == "leased")
    delivered = next(
        row for row in reversed(rows) if row["event"] == "delivered" and (row["group"], row["publish_seq"]) == held
    )
    overlapping = audited(spark, planted(rows, delivered, delivery_id="another"))
    assert kinds(overlapping.findings) == {("duplicated", *held)}
    assert [row.what for row in overlapping.findings.collect()] == ["deliver of a copy that was leased"]


async def test_a_swapped_order_is_found_only_where_order_is_kept(spark: SparkSession) -> None:
    rows = await ordered_rows()
    assert kinds(audited(spark, rows).findings) == set()
    deliveries = [row for row in rows if row["event"] == "delivered"]
    first, second = deliveries[0], deliveries[1]
    swapped = [
        {**row, "publish_seq": {1: 2, 2: 1}.get(row["publish_seq"], row["publish_seq"])}
        if row["event"] in {"delivered", "acked"}
        else row
        for row in rows
    ]
    assert (first["publish_seq"], second["publish_seq"]) == (1, 2)
    assert kinds(audited(spark, swapped).findings) == {("out_of_order", ORDERED, 1)}
    unordered = audit.audited(
        journal(spark, swapped).select(*audit.COLUMNS), None, ordered(spark).limit(0), removals=False
    )
    assert kinds(unordered.findings) == set()


async def test_an_order_swapped_over_the_border_of_two_audits_is_found(spark: SparkSession) -> None:
    rows = [
        {**row, "publish_seq": {1: 2, 2: 1}.get(row["publish_seq"], row["publish_seq"])}
        if row["event"] in {"delivered", "acked"}
        else row
        for row in await ordered_rows()
    ]
    border = next(number for number, row in enumerate(rows) if row["event"] == "acked") + 1
    first = audited(spark, rows[:border])
    assert kinds(first.findings) == set()
    assert kinds(audited(spark, rows[border:], first.open).findings) == {("out_of_order", ORDERED, 1)}


async def ordered_rows() -> list[Row]:
    """Three messages of one key, handled one after the other."""
    past = History(0)
    await past.begin()
    await past.broker.publish([seal(Message(id=name, queue=QUEUE, ordering_key="a")) for name in "abc"])
    for _ in range(3):
        (delivery,) = await past.broker.pull(QUEUE, ORDERED, worker="w", limit=3, lease=LEASE)
        await past.broker.settle([Ack(delivery.ack_id)])
    return [row for row in await past.rows() if row["group"] != PLAIN]


async def test_leases_and_schedules_past_their_time_are_stuck(spark: SparkSession) -> None:
    past = await history(6)
    found = audited(spark, await past.rows())
    now = from_ms(past.clock.now_ms())
    assert kinds(audit.stuck(found.open, now, timedelta(hours=1))) == set()
    later = now + timedelta(hours=1)
    stuck = kinds(audit.stuck(found.open, later, timedelta(minutes=1)))
    leased = {("stuck", *copy) for copy, state in copies(found.open).items() if state == "leased"}
    assert leased
    assert leased <= stuck
    assert {what for what in stuck if what not in leased} == {
        ("stuck", row.group, row.publish_seq)
        for row in found.open.collect()
        if row.state == "waiting" and row.deliver_at is not None and not row.delivered
    }


async def test_a_copy_that_later_ones_overtook_long_ago_is_suspect(spark: SparkSession) -> None:
    past = History(7)
    await past.begin()
    for _ in range(4):
        await past.publish()
        past.clock.advance(timedelta(seconds=1))
    rows = [row for row in await past.rows() if row["event"] == "enqueued"]
    lane = max({row["lane"] for row in rows}, key=lambda lane: sum(row["lane"] == lane for row in rows))
    mine = [row for row in rows if row["group"] == PLAIN and row["lane"] == lane]
    last = mine[-1]
    at: datetime = last["at"] + timedelta(seconds=5)
    overtaking = {**last, "event": "delivered", "seq": 10_000, "at": at, "wait_ms": 5_000, "lease_until": at + LEASE}
    found = audited(spark, [*rows, overtaking])
    ready_before = {("suspect", PLAIN, row["publish_seq"]) for row in mine if row["ready_at"] < last["ready_at"]}
    assert ready_before
    assert kinds(audit.suspect(found.open, at + timedelta(seconds=1), LEASE)) == set()
    assert kinds(audit.suspect(found.open, at + LEASE + timedelta(seconds=1), LEASE)) == ready_before
