"""A journal without completed copies: an audit finds the same in it as in the whole journal."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from godwit.core.journal.vocabulary import Event
from godwit.pipeline.audit import drop_completed
from godwit.pipeline.audit.interruptions import GroupRemoval, Interruptions, interruptions_of
from godwit.pipeline.source.schema import arrow_schema, columns
from tests.pipeline.histories import ORDERED, PLAIN, History, Row

BEGIN = datetime(2030, 1, 1, tzinfo=UTC)


def short(rows: Sequence[Row], *cuts: int, removals: Interruptions = drop_completed.NO_INTERRUPTIONS) -> list[Row]:
    """Return what is left of rows that tasks see piece by piece."""
    schema = arrow_schema(columns(*drop_completed.READ))
    pieces = [rows[start:end] for start, end in pairwise([0, *cuts, len(rows)])]
    found: list[Row] = []
    for piece in pieces:
        table = pa.table({field.name: pa.array([row.get(field.name) for row in piece], field.type) for field in schema})
        for batch in drop_completed.drop_completed(table.to_batches(max_chunksize=7), removals):
            found += batch.to_pylist()
    return found


def life(number: int, *events: str, **fields: Any) -> list[Row]:
    """Return the rows of one copy, one a second."""
    known = {"shard": "orders#0", "epoch": "e", "queue": "orders", "group": PLAIN, "lane": 1, "wait_ms": 0}
    return [
        {**known, "publish_seq": number, "seq": 10 * number + place, "event": event, "message_id": f"m{number}"}
        | {"at": BEGIN + timedelta(seconds=10 * number + place)}
        | fields
        for place, event in enumerate(events)
    ]


def left(rows: Sequence[Row], *cuts: int) -> list[int]:
    """Return which copies are left."""
    return sorted({row["publish_seq"] for row in short(rows, *cuts) if row["publish_seq"] is not None})


LAST = [*life(98, "enqueued", "delivered", "acked"), *life(99, "enqueued", "delivered", "acked")]
"""The copy that was ready last, and the one delivered last before that: they stay whatever comes before."""
WELL = [
    ("enqueued", "delivered", "acked"),
    ("scheduled", "delivered", "extended", "lease_moved", "acked"),
    ("enqueued", "delivered", "nacked", "delivered", "lease_expired", "delivered", "acked"),
    ("enqueued", "delivered", "handed_back", "delivered", "dead_lettered", "discarded"),
    ("enqueued", "message_expired", "discarded"),
    ("enqueued", "cancelled"),
]
OTHERWISE = [
    ("enqueued",),
    ("enqueued", "delivered"),
    ("enqueued", "delivered", "extended"),
    ("enqueued", "delivered", "nacked"),
    ("enqueued", "delivered", "dead_lettered"),
    ("delivered", "acked"),
    ("acked",),
    ("extended",),
    ("enqueued", "acked"),
    ("enqueued", "delivered", "acked", "acked"),
    ("enqueued", "delivered", "delivered", "acked"),
    ("enqueued", "enqueued", "delivered", "acked"),
    ("enqueued", "delivered", "cancelled"),
]


@pytest.mark.parametrize("events", WELL)
def test_a_life_that_ended_well_is_left_out(events: tuple[str, ...]) -> None:
    assert left([*life(1, *events), *LAST]) == [98, 99]


@pytest.mark.parametrize("events", OTHERWISE)
def test_any_other_life_stays_as_a_whole(events: tuple[str, ...]) -> None:
    rows = [*life(1, *events), *LAST]
    assert [row["event"] for row in short(rows) if row["publish_seq"] == 1] == list(events)


def test_a_life_that_two_tasks_see_stays() -> None:
    rows = [*life(1, "enqueued", "delivered", "acked"), *LAST]
    assert left(rows, 1) == left(rows, 2) == [1, 98, 99]
    assert left(rows) == left(list(reversed(rows))) == [98, 99]


def test_lives_with_a_key_and_replays_stay() -> None:
    well = ("enqueued", "delivered", "acked")
    assert left([*life(1, *well, ordering_key="a"), *LAST]) == [1, 98, 99]
    assert left([*life(1, "replayed", "delivered", "acked", former_seq=0), *LAST]) == [1, 98, 99]


def test_of_every_lane_the_copies_that_others_are_compared_with_stay() -> None:
    well = ("enqueued", "delivered", "acked")
    rows = [
        *life(1, *well),
        *life(2, *well, wait_ms=None),
        *life(3, *well),
        *life(4, *well, wait_ms=60_000),  # delivered later, but ready long before
        *life(5, *well, lane=2),
        *life(6, *well, group=ORDERED),
        *life(7, *well, shard="orders#1"),
    ]
    assert left(rows) == [1, 3, 4, 5, 6, 7]  # 1 was delivered last before 3 was ready, 4 last of all
    assert left(rows, 3, 6, 9, 12, 15, 18) == [1, 3, 4, 5, 6, 7]
    assert left([*life(1, *well), *life(2, *well), *rows[6:9]]) == [2, 3]


@pytest.mark.parametrize(
    ("removal", "group", "events"),
    [
        ("purged", PLAIN, ("enqueued", "delivered", "acked")),
        ("purged", None, ("enqueued", "delivered", "nacked", "delivered", "acked")),
        ("group_removed", PLAIN, ("enqueued", "delivered", "acked")),
        ("queue_removed", None, ("enqueued", "delivered", "dead_lettered", "discarded")),
    ],
)
def test_a_life_that_goes_on_behind_a_removal_stays(removal: str, group: str | None, events: tuple[str, ...]) -> None:
    spread = [{**row, "seq": 2 * row["seq"]} for row in [*life(1, *events), *LAST]]
    seq = spread[0]["seq"] + 1  # while it waits
    known = interruptions_of([GroupRemoval("orders#0", "e", seq, group, Event(removal))], ())
    elsewhere = interruptions_of([GroupRemoval("orders#0", "e", seq, ORDERED, Event(removal))], ())
    assert {row["publish_seq"] for row in short(spread, removals=known) if row["event"]} == {1, 98, 99}
    assert {row["publish_seq"] for row in short(spread, removals=elsewhere) if row["event"]} == {98, 99}
    later = interruptions_of(
        [GroupRemoval("orders#0", "e", spread[len(events) - 1]["seq"] + 1, group, Event(removal))], ()
    )
    assert {row["publish_seq"] for row in short(spread, removals=later) if row["event"]} == {98, 99}


def test_what_is_no_step_of_a_copy_stays() -> None:
    other: list[Row] = [
        {"shard": "orders#0", "epoch": "e", "seq": 1, "at": BEGIN, "event": event, "queue": "orders", "group": group}
        for event, group in (("queue_created", None), ("group_created", PLAIN), ("purged", PLAIN), ("duplicate", None))
    ]
    assert [row["event"] for row in short(other) if row["event"]] == [row["event"] for row in other]


@pytest.mark.parametrize("cuts", [(), (100,), (1, 2, 333)])
def test_what_was_read_of_each_shard_is_told(cuts: tuple[int, ...]) -> None:
    past = History(11)

    async def play() -> list[Row]:
        await past.begin()
        await past.go_on(300)
        return await past.rows()

    rows = asyncio.run(play())
    for row in rows[::3]:
        row["shard"] = "orders#1"
    facts = [row for row in short(rows, *cuts) if row["n"] is not None]
    for shard in ("orders#0", "orders#1"):
        mine, told = ([row for row in where if row["shard"] == shard] for where in (rows, facts))
        seqs = [row["seq"] for row in mine]
        assert sum(row["n"] for row in told) == len(mine)
        assert sum(row["seq_sum"] for row in told) == sum(seqs)
        assert (min(row["first_seq"] for row in told), max(row["last_seq"] for row in told)) == (seqs[0], seqs[-1])
        assert max(row["last_at_ms"] for row in told) == int(mine[-1]["at"].timestamp() * 1_000)
        assert {row["epoch"] for row in told} == {rows[0]["epoch"]}


def once(rows: Sequence[Row], *cuts: int, **highest: int) -> bool:
    """Say what is said of arrivals when tasks see rows piece by piece."""
    facts = [row for row in short(rows, *cuts) if row["lowest"] is not None]
    told = [((row["shard"], row["epoch"], row["group"]), row["lowest"], row["arrivals"]) for row in facts]
    opened = {("orders#0", "e", group): number for group, number in highest.items()}
    return drop_completed.arrivals_are_unique(told, opened)


@pytest.mark.parametrize("again", ["enqueued", "scheduled", "replayed"])
def test_a_copy_that_arrives_again_in_another_task_is_seen(again: str) -> None:
    rows = [row for number in (1, 2, 5, 9) for row in life(number, "enqueued", "delivered", "acked")]
    assert once(rows)
    assert all(once(rows, cut) for cut in range(1, len(rows)))
    doubled = [*rows, *life(5, again, "delivered", "acked")]
    assert not once(doubled, len(rows))
    assert once([*rows, *life(5, again, group=ORDERED)], len(rows))
    assert once([*rows, *life(5, again, shard="orders#1")], len(rows))
    assert once([*rows, *life(6, again)], len(rows))


def test_a_copy_that_arrives_although_it_may_be_open_is_seen() -> None:
    rows = [row for number in (3, 4) for row in life(number, "enqueued", "delivered", "acked")]
    assert once(rows, **{PLAIN: 2, ORDERED: 100})
    assert not once(rows, **{PLAIN: 3})
    assert not once(rows, **{PLAIN: 100})


def test_arrivals_without_number_or_far_apart_are_not_vouched_for() -> None:
    assert not once(life(1, "enqueued", publish_seq=None))
    apart = [*life(1, "enqueued"), *life(10_000, "enqueued")]
    assert once(apart)
    assert once(apart, 1)
    far = [*apart, *life(2, "enqueued", publish_seq=10**9)]
    assert not once(far)
    assert not once(far, 2)
    assert once([row for number in range(1, 1_000, 3) for row in life(number, "enqueued")], 50)  # of three groups


def test_large_tasks_are_looked_at_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for number in range(1, 100) for row in life(number, "enqueued", "delivered", "acked")]
    assert left(rows) == [98, 99]
    monkeypatch.setattr(drop_completed, "MOST_ROWS", 30)
    random = Random(1)
    assert 99 in left(rows)
    assert len(left(rows)) < 40
    assert left(random.sample(rows, len(rows)))
