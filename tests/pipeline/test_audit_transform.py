"""The audit as a transform. Histories and damages share two audits, a shard each: a plan takes longer than its rows."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from godwit.brokers.contract import Ack, Snapshot
from godwit.core.clock import from_ms
from godwit.core.journal.lifecycle import REMOVALS
from godwit.core.journal.projection import Projection
from godwit.core.journal.vocabulary import Event
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.pipeline.audit.broker_copies import LISTING
from godwit.pipeline.audit.copy_lifecycle import COLUMNS
from godwit.pipeline.audit.interruptions import GroupRemoval, interruptions_of
from godwit.pipeline.transforms import audit, audit_findings
from tests.pipeline.histories import LEASE, ORDERED, PLAIN, QUEUE, History, Row, journal
from tests.pipeline.test_drop_completed import short

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Copy = tuple[str, int]
LISTED = "shard string, epoch string, seq long"


class Audited:
    """One audit of several histories, each of them a shard named after what it shows."""

    def __init__(self, spark: SparkSession, histories: dict[str, list[Row]], before: Audited | None = None) -> None:
        rows = [{**row, "shard": name} for name, past in histories.items() for row in past]
        self.epochs = {row["shard"]: row["epoch"] for row in rows}
        keeping = [(name, self.epochs[name], ORDERED, True) for name in histories if name != UNORDERED]
        removed = [
            GroupRemoval(row["shard"], row["epoch"], row["seq"], row["group"], Event(row["event"]))
            for row in rows
            if row["event"] in REMOVALS
        ]
        found = audit.follow_copies(
            journal(spark, (row for row in rows if row["event"] is not None)).select(*COLUMNS),
            before.table(*histories) if before is not None else None,
            spark.createDataFrame(keeping, "shard string, epoch string, group string, in_order boolean"),
            interruptions=interruptions_of(removed, ()),
        )
        self._spark = spark
        self._open = found.open.collect()
        self._findings = found.findings.collect()
        found.steps.unpersist()

    def open(self, name: str) -> list[Any]:
        """Return the copies of a history that have not ended."""
        return [row for row in self._open if row.shard == name]

    def table(self, *names: str) -> DataFrame:
        """Return open copies as a table with no past, as one that was written and read again."""
        return self._spark.createDataFrame([row for name in names for row in self.open(name)], audit.OPEN)

    def findings(self, name: str) -> list[Any]:
        """Return what is wrong with a history."""
        return [row for row in self._findings if row.shard == name]


UNORDERED = "swapped where order is not kept"
KEPT = {"in order", "swapped", UNORDERED, "swapped over a border", "overtaken"}
"""Histories in which every life has a key, or goes on."""


def copies(found: Iterable[Any]) -> dict[Copy, str]:
    return {(row.group, row.publish_seq): row.state for row in found}


def kinds(found: DataFrame | Iterable[Any]) -> set[tuple[str, str, int]]:
    rows = found.collect() if hasattr(found, "collect") else found
    return {(row.kind, row.group, row.publish_seq) for row in rows}


def live(rows: list[Row]) -> dict[Copy, str]:
    projection = Projection()
    for row in rows:
        projection.apply({**row, "event": Event(row["event"])})
    return {(copy.group, copy.publish_seq): copy.state for copy in projection.copies.values()}


class Pasts:
    """What happened, before any audit: the histories of all tests below."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Row]] = {}
        self.more: dict[str, list[Row]] = {}
        self.snapshots: dict[str, Snapshot] = {}
        self.now: dict[str, datetime] = {}

    async def play(self) -> None:
        for seed in (1, 2, 4, 5, 6):
            past = await _history(seed)
            name = f"real {seed}"
            self.rows[name] = await past.rows()
            self.snapshots[name] = await past.snapshot()
            self.now[name] = from_ms(past.clock.now_ms())
        past = await _history(3)
        self.rows["carried"] = await past.rows()
        await past.go_on(300)
        self.rows["whole"] = await past.rows()
        self.more["carried"] = await past.rows(after=self.rows["carried"][-1]["seq"])
        self._damage(self.rows["real 5"])
        self._swap(await _ordered_rows())
        self.rows["overtaken"] = await _overtaken()

    def _damage(self, rows: list[Row]) -> None:
        acked = next(row for row in rows if row["event"] == "acked")
        self.rows["doubled end"] = planted(rows, acked)
        held = next(copy for copy, state in live(rows).items() if state == "leased")
        delivered = next(
            row for row in reversed(rows) if row["event"] == "delivered" and (row["group"], row["publish_seq"]) == held
        )
        self.rows["second lease"] = planted(rows, delivered, delivery_id="another")

    def _swap(self, rows: list[Row]) -> None:
        swapped = [
            {**row, "publish_seq": {1: 2, 2: 1}.get(row["publish_seq"], row["publish_seq"])}
            if row["event"] in {"delivered", "acked"}
            else row
            for row in rows
        ]
        self.rows |= {"in order": rows, "swapped": swapped, UNORDERED: swapped}
        border = next(number for number, row in enumerate(swapped) if row["event"] == "acked") + 1
        self.rows["swapped over a border"] = swapped[:border]
        self.more["swapped over a border"] = swapped[border:]


def planted(rows: list[Row], row: Row, **changes: Any) -> list[Row]:
    """Return the history with one more row at its end."""
    last = rows[-1]
    return [*rows, {**row, "seq": last["seq"] + 1, "at": last["at"], **changes}]


async def _history(seed: int, steps: int = 400) -> History:
    past = History(seed)
    await past.begin()
    await past.go_on(steps)
    return past


async def _ordered_rows() -> list[Row]:
    """Three messages of one key, handled one after the other."""
    past = History(0)
    await past.begin()
    await past.broker.publish([seal(Message(id=name, queue=QUEUE, ordering_key="a")) for name in "abc"])
    for _ in range(3):
        (delivery,) = await past.broker.pull(QUEUE, ORDERED, worker="w", limit=3, lease=LEASE)
        await past.broker.settle([Ack(delivery.ack_id)])
    return [row for row in await past.rows() if row["group"] != PLAIN]


async def _overtaken() -> list[Row]:
    """Messages that wait, and at the end the delivery of the one of its lane that was ready last."""
    past = History(7)
    await past.begin()
    for _ in range(4):
        await past.publish()
        past.clock.advance(timedelta(seconds=1))
    rows = [row for row in await past.rows() if row["event"] == "enqueued"]
    last = _same_lane(rows)[-1]
    at: datetime = last["at"] + timedelta(seconds=5)
    late = {**last, "event": "delivered", "seq": 10_000, "at": at, "wait_ms": 5_000, "lease_until": at + LEASE}
    return [*rows, late]


def _same_lane(rows: list[Row]) -> list[Row]:
    """Return the rows of the busiest lane."""
    lane = max({row["lane"] for row in rows}, key=lambda lane: sum(row["lane"] == lane for row in rows))
    return [row for row in rows if row["group"] == PLAIN and row["lane"] == lane]


@pytest.fixture(scope="module")
def pasts() -> Pasts:
    made = Pasts()
    asyncio.run(made.play())
    return made


@pytest.fixture(scope="module")
def first(spark: SparkSession, pasts: Pasts) -> Audited:
    return Audited(spark, pasts.rows)


@pytest.fixture(scope="module")
def second(spark: SparkSession, pasts: Pasts, first: Audited) -> Audited:
    """The audit of what came later, going on from the first one."""
    return Audited(spark, pasts.more, first)


@pytest.mark.parametrize("name", ["real 1", "real 2"])
def test_a_real_history_has_no_findings_and_ends_with_what_the_broker_holds(
    spark: SparkSession, pasts: Pasts, first: Audited, name: str
) -> None:
    assert first.findings(name) == []
    assert copies(first.open(name)) == live(pasts.rows[name])
    snapshot = pasts.snapshots[name]
    listing = spark.createDataFrame(
        [
            (name, snapshot.position.epoch, QUEUE, copy.group, copy.publish_seq, copy.message_id)
            for copy in snapshot.copies
        ],
        LISTING,
    )
    listed = spark.createDataFrame([(name, snapshot.position.epoch, snapshot.position.seq)], LISTED)
    assert kinds(audit_findings.lost_copies(first.table(name), listing, listed)) == set()
    assert kinds(audit_findings.unrecorded_copies(first.table(name), listing)) == set()
    assert len(first.open(name)) > 20
    assert set(copies(first.open(name)).values()) == {"waiting", "leased", "dead"}


def test_a_shortened_journal_says_the_same(spark: SparkSession, pasts: Pasts, first: Audited, second: Audited) -> None:
    """In one task, and in several of each history, whose lives go on from one to the next."""
    whole = Audited(spark, {name: short(rows) for name, rows in pasts.rows.items()})
    cut = Audited(spark, {name: short(rows, *range(50, len(rows), 50)) for name, rows in pasts.rows.items()})
    for name, rows in pasts.rows.items():
        assert set(whole.open(name)) == set(first.open(name)), name
        assert set(map(_but_for_turns, cut.open(name))) == set(map(_but_for_turns, first.open(name))), name
        assert _overtaken_schedules(cut.open(name)) <= _overtaken_schedules(first.open(name)), name
        assert set(whole.findings(name)) == set(first.findings(name)), name
        assert kinds(cut.findings(name)) == kinds(first.findings(name)), name  # in other words perhaps
        assert sum(row["event"] is not None for row in short(rows)) < len(rows) or name in KEPT, name
    later = Audited(spark, {name: short(rows) for name, rows in pasts.more.items()}, whole)
    for name in pasts.more:
        assert set(later.open(name)) == set(second.open(name)), name
        assert set(later.findings(name)) == set(second.findings(name)), name


def _but_for_turns(row: Any) -> Any:
    """Return a copy without the mark that tasks which see few deliveries make later: an overtaken schedule's."""
    return tuple(row) if row.deliver_at is None else tuple({**row.asDict(), "overtaken_at": None}.values())


def _overtaken_schedules(rows: Iterable[Any]) -> set[Any]:
    return {tuple(row) for row in rows if row.deliver_at is not None and row.overtaken_at is not None}


def test_an_audit_goes_on_where_the_last_one_ended(first: Audited, second: Audited) -> None:
    assert second.findings("carried") == []
    assert {tuple(row)[1:] for row in second.open("carried")} == {tuple(row)[1:] for row in first.open("whole")}


def test_a_copy_missing_from_the_listing_is_lost_and_one_too_many_is_doubled(
    spark: SparkSession, first: Audited
) -> None:
    name = "real 4"
    found = first.table(name)
    there = sorted(copies(first.open(name)))
    gone, extra, epoch = there[0], (PLAIN, 10**9), first.epochs[name]
    ids = {(row.group, row.publish_seq): row.message_id for row in first.open(name)}
    listing = spark.createDataFrame(
        [(name, epoch, QUEUE, *copy, ids.get(copy, "id")) for copy in [*there[1:], extra]], LISTING
    )
    born = {(row.group, row.publish_seq): row.born for row in first.open(name)}
    listed = spark.createDataFrame([(name, epoch, born[gone])], LISTED)
    earlier = spark.createDataFrame([(name, epoch, born[gone] - 1)], LISTED)
    assert kinds(audit_findings.lost_copies(found, listing, listed)) == {("lost", *gone)}
    assert kinds(audit_findings.lost_copies(found, listing, earlier)) == set()
    assert kinds(audit_findings.unrecorded_copies(found, listing)) == {("duplicated", *extra)}


def test_a_doubled_end_and_a_second_lease_are_found(pasts: Pasts, first: Audited) -> None:
    acked = pasts.rows["doubled end"][-1]
    assert kinds(first.findings("doubled end")) == {("duplicated", acked["group"], acked["publish_seq"])}
    held = pasts.rows["second lease"][-1]
    assert kinds(first.findings("second lease")) == {("duplicated", held["group"], held["publish_seq"])}
    assert [row.what for row in first.findings("second lease")] == ["deliver of a copy that was leased"]


def test_a_swapped_order_is_found_only_where_order_is_kept(pasts: Pasts, first: Audited) -> None:
    deliveries = [row["publish_seq"] for row in pasts.rows["in order"] if row["event"] == "delivered"]
    assert deliveries[:2] == [1, 2]
    assert kinds(first.findings("in order")) == set()
    assert kinds(first.findings("swapped")) == {("out_of_order", ORDERED, 1)}
    assert kinds(first.findings(UNORDERED)) == set()


def test_an_order_swapped_over_the_border_of_two_audits_is_found(first: Audited, second: Audited) -> None:
    assert kinds(first.findings("swapped over a border")) == set()
    assert kinds(second.findings("swapped over a border")) == {("out_of_order", ORDERED, 1)}


def test_leases_past_their_time_and_overtaken_schedules_are_stuck(pasts: Pasts, first: Audited) -> None:
    name = "real 6"
    found, now = first.table(name), pasts.now[name]
    assert kinds(audit_findings.stuck_copies(found, now, timedelta(hours=1))) == set()
    later = now + timedelta(hours=1)
    stuck = kinds(audit_findings.stuck_copies(found, later, timedelta(minutes=1)))
    leased = {("stuck", *copy) for copy, state in copies(first.open(name)).items() if state == "leased"}
    assert leased
    assert leased <= stuck
    due = [row for row in first.open(name) if row.state == "waiting" and row.deliver_at and not row.delivered]
    assert due
    assert {what for what in stuck if what not in leased} == {
        ("stuck", row.group, row.publish_seq) for row in due if row.overtaken_at is not None
    }


def test_a_copy_that_later_ones_overtook_long_ago_is_suspect(pasts: Pasts, first: Audited) -> None:
    *rows, late = pasts.rows["overtaken"]
    mine, at = _same_lane(rows), late["at"]
    ready_before = {("suspect", PLAIN, row["publish_seq"]) for row in mine if row["ready_at"] < late["ready_at"]}
    assert ready_before
    found = first.table("overtaken")
    assert kinds(audit_findings.overtaken_copies(found, at + timedelta(seconds=1), LEASE)) == set()
    assert kinds(audit_findings.overtaken_copies(found, at + LEASE + timedelta(seconds=1), LEASE)) == ready_before
