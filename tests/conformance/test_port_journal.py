"""The journal port: reading, losing, trimming, committing, snapshots."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack
from godwit.core.errors import JournalLost
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.projection import Projection
from godwit.core.journal.shards import Position, shard_name
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q

pytestmark = pytest.mark.promise(11)

SHARD = shard_name(Q)


async def some_life(harness: Harness, first: int = 0) -> None:
    """Let messages go through most of the transitions there are."""
    await harness.publish(*(f"m{n}" for n in range(first, first + 6)))
    await harness.publish(f"later{first}", due=LONG)
    one, two, three, four = await harness.pull(4)
    await harness.broker.settle([Ack(one.ack_id)])
    await harness.retry(two, LONG)
    await harness.give_up(three)
    await harness.broker.extend([four.ack_id], LEASE)
    await harness.let_pass(LEASE + MOMENT)
    await harness.publish(f"m{first}")


async def ends(harness: Harness) -> tuple[int, int]:
    shard = (await harness.broker.journal.shards())[SHARD]
    return shard.first_seq, shard.last_seq


async def test_seq_is_dense_and_at_never_decreases(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await some_life(harness)
    rows = await harness.rows()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
    assert len({row["epoch"] for row in rows}) == 1
    assert await ends(harness) == (1, len(rows))


async def test_at_never_decreases_when_the_clock_jumps_back(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    if harness.clock:
        harness.clock.advance(-LONG)
    await harness.publish("b")
    rows = await harness.rows()
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1_000])
async def test_reading_page_by_page_gives_the_same_rows(harness: Harness, limit: int) -> None:
    await harness.declare("default", "mail")
    await some_life(harness)
    assert await harness.rows(limit=limit) == await harness.rows()


async def test_a_read_gives_at_most_so_many_rows_but_at_least_one_chunk(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(10)))
    await harness.publish("x")
    after = Position((await harness.rows())[0]["epoch"], 2)
    (chunk,) = await harness.broker.journal.read(SHARD, after, limit=3)
    assert len(decode_chunk(chunk).rows) == 10
    assert len(await harness.broker.journal.read(SHARD, after, limit=11)) == 2


async def test_a_read_from_the_middle_of_a_chunk_begins_with_that_chunk(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(10)))
    epoch = (await harness.rows())[0]["epoch"]
    rows = await harness.rows(after=Position(epoch, 5))
    assert [row["seq"] for row in rows] == list(range(6, 13))


async def test_a_read_from_the_end_gives_nothing_and_is_no_loss(harness: Harness) -> None:
    await harness.declare()
    last = (await harness.rows())[-1]
    assert await harness.broker.journal.read(SHARD, Position(last["epoch"], last["seq"])) == []


async def test_a_read_with_another_epoch_is_a_loss(harness: Harness) -> None:
    await harness.declare()
    with pytest.raises(JournalLost):
        await harness.broker.journal.read(SHARD, Position("another", 1))


async def test_a_read_beyond_the_end_is_a_loss(harness: Harness) -> None:
    await harness.declare()
    last = (await harness.rows())[-1]
    with pytest.raises(JournalLost):
        await harness.broker.journal.read(SHARD, Position(last["epoch"], last["seq"] + 1))


async def test_epoch_and_seq_go_on_after_a_restart(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    before = await harness.rows()
    await harness.restart()
    await harness.publish("b")
    rows = await harness.rows()
    assert rows[: len(before)] == before
    assert [row["seq"] for row in rows] == list(range(1, len(before) + 2))


async def test_trimming_drops_what_is_older_than_journal_keep(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    old = await harness.rows()
    await harness.outage(LEASE + MOMENT)
    await harness.publish("b")
    assert await harness.broker.journal.trim() == len(old)
    assert await ends(harness) == (len(old) + 1, len(old) + 1)
    assert [row["message_id"] for row in await harness.rows()] == ["b"]


async def test_maintain_trims_too(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    await harness.outage(LEASE + MOMENT)
    await harness.broker.maintain()
    first, last = await ends(harness)
    assert first == last + 1


async def test_rows_that_are_trimmed_are_a_loss_to_who_asks_for_them(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    rows = await harness.rows()
    epoch, last = rows[-1]["epoch"], rows[-1]["seq"]
    await harness.outage(LEASE + MOMENT)
    await harness.broker.journal.trim()
    with pytest.raises(JournalLost):
        await harness.broker.journal.read(SHARD, Position(epoch, 1))
    assert await harness.broker.journal.read(SHARD, Position(epoch, last)) == []


async def test_seq_goes_on_after_everything_was_trimmed(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    count = len(await harness.rows())
    await harness.outage(LEASE + MOMENT)
    await harness.broker.journal.trim()
    await harness.restart()
    await harness.publish("b")
    assert [row["seq"] for row in await harness.rows()] == [count + 1]


async def test_a_committed_reader_holds_trimming_by_age_back(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    await harness.publish("b")
    rows = await harness.rows()
    read = Position(rows[0]["epoch"], rows[-2]["seq"])
    await harness.broker.journal.commit("reader", SHARD, read)
    assert await harness.broker.journal.committed("reader") == {SHARD: read}
    await harness.outage(LEASE + MOMENT)
    await harness.broker.journal.trim()
    assert await ends(harness) == (rows[-1]["seq"], rows[-1]["seq"])
    assert len(await harness.rows(after=read)) == 1


async def test_the_slowest_reader_counts(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    epoch = (await harness.rows())[0]["epoch"]
    await harness.broker.journal.commit("fast", SHARD, Position(epoch, 3))
    await harness.broker.journal.commit("slow", SHARD, Position(epoch, 1))
    await harness.outage(LEASE + MOMENT)
    await harness.broker.journal.trim()
    assert (await ends(harness))[0] == 2


async def test_a_forgotten_reader_holds_nothing(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await harness.publish("a")
    epoch = (await harness.rows())[0]["epoch"]
    await harness.broker.journal.commit("reader", SHARD, Position(epoch, 0))
    await harness.outage(LEASE + MOMENT)
    assert await harness.broker.journal.trim() == 0
    await harness.broker.journal.forget("reader")
    assert await harness.broker.journal.committed("reader") == {}
    assert await harness.broker.journal.trim() == 3


async def test_positions_of_readers_survive_a_restart(harness: Harness) -> None:
    await harness.declare()
    position = Position((await harness.rows())[0]["epoch"], 1)
    await harness.broker.journal.commit("reader", SHARD, position)
    await harness.restart()
    assert await harness.broker.journal.committed("reader") == {SHARD: position}
    assert await harness.broker.journal.committed("nobody") == {}


async def test_the_size_limit_wins_over_readers_and_what_they_lost_is_counted(harness: Harness) -> None:
    await harness.declare(journal_max_bytes=2_000)
    epoch = (await harness.rows())[0]["epoch"]
    await harness.broker.journal.commit("reader", SHARD, Position(epoch, 0))
    for n in range(40):
        await harness.publish(f"m{n}")
    await harness.broker.journal.trim()
    shard = (await harness.broker.journal.shards())[SHARD]
    assert shard.bytes <= 2_000
    assert shard.first_seq > 1
    assert shard.dropped == shard.first_seq - 1
    with pytest.raises(JournalLost):
        await harness.broker.journal.read(SHARD, Position(epoch, 0))


async def test_the_size_limit_counts_nothing_as_dropped_that_every_reader_had_read(harness: Harness) -> None:
    await harness.declare(journal_max_bytes=2_000)
    for n in range(40):
        await harness.publish(f"m{n}")
    rows = await harness.rows()
    await harness.broker.journal.commit("reader", SHARD, Position(rows[-1]["epoch"], rows[-1]["seq"]))
    await harness.broker.journal.trim()
    shard = (await harness.broker.journal.shards())[SHARD]
    assert (shard.bytes <= 2_000, shard.dropped) == (True, 0)


async def test_the_journal_of_a_removed_queue_stays_and_goes_on_when_it_is_declared_again(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.broker.remove(Q)
    before = await harness.rows()
    assert before[-1]["event"] == "queue_removed"
    await harness.declare()
    await harness.publish("b")
    rows = await harness.rows()
    assert rows[: len(before)] == before
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert len({row["epoch"] for row in rows}) == 1
    assert rows[-1]["publish_seq"] == 2


async def test_replaying_the_whole_journal_gives_the_live_state(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=True), "mail")
    await some_life(harness)
    await some_life(harness, 100)
    snapshot = await harness.broker.journal.snapshot(Q)
    assert {copy.address: copy for copy in snapshot.copies} == await harness.projection()
    assert snapshot.position.seq == (await ends(harness))[1]


async def test_a_snapshot_and_what_follows_give_the_live_state(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await some_life(harness)
    snapshot = await harness.broker.journal.snapshot(Q)
    await some_life(harness, 100)
    projection = Projection(snapshot.copies)
    for row in await harness.rows(after=snapshot.position):
        projection.apply(row)
    later = await harness.broker.journal.snapshot(Q)
    assert {copy.address: copy for copy in later.copies} == projection.copies


async def test_a_snapshot_still_serves_after_the_journal_was_trimmed(harness: Harness) -> None:
    await harness.declare(journal_keep=LEASE)
    await some_life(harness)
    await harness.outage(timedelta(hours=1))
    await harness.broker.maintain()
    assert (await ends(harness))[0] > 1, "the journal was trimmed"
    snapshot = await harness.broker.journal.snapshot(Q)
    projection = Projection(snapshot.copies)
    await harness.publish("x")
    for row in await harness.rows(after=snapshot.position):
        projection.apply(row)
    assert {copy.address: copy for copy in (await harness.broker.journal.snapshot(Q)).copies} == projection.copies


async def test_journals_of_different_queues_are_apart(harness: Harness) -> None:
    await harness.declare()
    await harness.declare(queue="other")
    await harness.publish("a", queue="other")
    assert await harness.events() == ["queue_created", "group_created"]
    shards = await harness.broker.journal.shards()
    assert set(shards) == {SHARD, shard_name("other")}
    assert len({shard.epoch for shard in shards.values()}) == 2
