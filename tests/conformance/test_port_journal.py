"""The journal port: reading, losing, trimming, committing, snapshots."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from godwit.brokers.contract import Ack
from godwit.core.clock import milliseconds
from godwit.core.errors import GroupNotFound, InvalidSetting, JournalLost, QueueNotFound
from godwit.core.journal.chunks import decode_chunk
from godwit.core.journal.lifecycle import ARRIVALS
from godwit.core.journal.projection import Projection
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import HOLDS, Event
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, JournalBody
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


# Who asked for it, and what it belongs to

ACTOR = "ann"


def marked(harness: Harness, id_: str, *, key: str | None = None) -> Envelope:
    """Return a message with marks for the journal."""
    sealed = seal(Message(id=MessageId(id_), queue=Q, created_at=harness.at(), ordering_key=key))
    return replace(sealed, correlation_id="order-7", journal_attributes='{"tenant":"acme"}')


async def actors_of(harness: Harness, *events: Event) -> dict[str, set[str | None]]:
    """Return who asked for each of these events that there are."""
    found: dict[str, set[str | None]] = {}
    for row in await harness.rows():
        if row["event"] in events:
            found.setdefault(row["event"], set()).add(row["actor"])
    return found


async def test_what_an_actor_asked_for_names_it(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await harness.publish("a", "b", "c", "d")
    for group in ("default", "mail"):
        for delivery in await harness.pull(2, group=group):
            await harness.give_up(delivery)
    letters = harness.broker.dead_letters
    first, second, *_ = await letters.page(Q)
    assert await letters.replay([first.id], actor=ACTOR) == []
    assert await letters.discard([second.id], actor=ACTOR) == []
    assert await harness.broker.cancel(Q, MessageId("d"), actor=ACTOR)
    assert await harness.broker.purge(Q, actor=ACTOR)
    await harness.broker.remove(Q, GroupName("mail"), actor=ACTOR)
    await harness.broker.remove(Q, actor=ACTOR)
    asked = ("replayed", "discarded", "cancelled", "purged", "group_removed", "queue_removed")
    assert await actors_of(harness, *map(Event, asked)) == {event: {ACTOR} for event in asked}
    others = {row["actor"] for row in await harness.rows() if row["event"] not in asked}
    assert others == {None}


async def test_without_an_actor_the_same_calls_name_none(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    (one,) = await harness.pull(1)
    await harness.give_up(one)
    (letter,) = await harness.broker.dead_letters.page(Q)
    await harness.broker.dead_letters.replay([letter.id])
    await harness.broker.purge(Q)
    await harness.broker.remove(Q)
    assert {row["actor"] for row in await harness.rows()} == {None}


async def test_pauses_drains_and_their_ends_are_in_the_journal(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.broker.note_hold(Event.PAUSED, Q, G, hold=b'{"by":"ann"}', actor=ACTOR)
    await harness.broker.note_hold(Event.DRAINING, Q, hold=None, actor=None)
    await harness.broker.note_hold(Event.RESUMED, Q, hold=None, actor=ACTOR)
    rows = [row for row in await harness.rows() if row["event"] in HOLDS]
    assert [(row["event"], row["group"], row["depth"], row["actor"], row["body"]) for row in rows] == [
        ("paused", G, 1, ACTOR, b'{"by":"ann"}'),
        ("draining", None, None, None, None),
        ("resumed", None, None, ACTOR, None),
    ]
    snapshot = await harness.broker.journal.snapshot(Q)
    assert {copy.address: copy for copy in snapshot.copies} == await harness.projection()


async def test_a_hold_of_what_does_not_exist_is_refused(harness: Harness) -> None:
    await harness.declare()
    with pytest.raises(QueueNotFound):
        await harness.broker.note_hold(Event.PAUSED, QueueName("other"), hold=None, actor=None)
    with pytest.raises(GroupNotFound):
        await harness.broker.note_hold(Event.PAUSED, Q, GroupName("other"), hold=None, actor=None)
    with pytest.raises(InvalidSetting):
        await harness.broker.note_hold(Event.ACKED, Q, hold=None, actor=None)


@pytest.mark.parametrize("actor", ["", "a" * 256, "two\nlines", 7])
async def test_an_actor_that_cannot_be_kept_is_refused_and_nothing_happens(harness: Harness, actor: Any) -> None:
    await harness.declare()
    await harness.publish("a")
    before = await harness.rows()
    broker = harness.broker
    for call in (
        lambda: broker.purge(Q, actor=actor),
        lambda: broker.cancel(Q, MessageId("a"), actor=actor),
        lambda: broker.remove(Q, actor=actor),
        lambda: broker.dead_letters.replay([], actor=actor),
        lambda: broker.dead_letters.discard([], actor=actor),
        lambda: broker.note_hold(Event.PAUSED, Q, hold=None, actor=actor),
    ):
        with pytest.raises(InvalidSetting, match="actor"):
            await call()
    assert await harness.rows() == before


async def test_arrivals_carry_correlation_id_and_attributes_and_so_does_a_replay(harness: Harness) -> None:
    await harness.declare()
    first = marked(harness, "a")
    later = replace(marked(harness, "b"), deliver_at_ms=harness.now_ms + milliseconds(LONG))
    await harness.broker.publish([first])
    await harness.broker.publish([later])
    await harness.publish("plain")
    one, *_ = await harness.pull(1)
    assert one.envelope == first
    await harness.give_up(one)
    (letter,) = await harness.broker.dead_letters.page(Q)
    assert letter.envelope == first
    await harness.broker.dead_letters.replay([letter.id])
    told = ("enqueued", "scheduled", "replayed")
    rows = {(row["event"], row["message_id"]): row for row in await harness.rows() if row["event"] in told}
    assert {where: (row["correlation_id"], row["attributes"]) for where, row in rows.items()} == {
        ("enqueued", "a"): ("order-7", '{"tenant":"acme"}'),
        ("scheduled", "b"): ("order-7", '{"tenant":"acme"}'),
        ("enqueued", "plain"): (None, None),
        ("replayed", "a"): ("order-7", '{"tenant":"acme"}'),
    }
    assert rows["replayed", "a"]["former_seq"] == one.publish_seq


@pytest.mark.parametrize("body", list(JournalBody))
async def test_marks_in_one_call_with_messages_without_are_those_of_their_own(
    harness: Harness, body: JournalBody
) -> None:
    await harness.declare(journal_body=body)
    plain = seal(Message(id=MessageId("b"), queue=Q, created_at=harness.at()))
    half = replace(plain, id=MessageId("c"), correlation_id="order-8")
    await harness.broker.publish([marked(harness, "a"), plain, half])
    rows = [row for row in await harness.rows() if row["event"] == Event.ENQUEUED]
    assert [(row["message_id"], row["correlation_id"], row["attributes"]) for row in rows] == [
        ("a", "order-7", '{"tenant":"acme"}'),
        ("b", None, None),
        ("c", "order-8", None),
    ]
    assert [row["body"] is not None for row in rows] == [rows[0]["body"] is not None] * 3


async def test_marks_stay_with_messages_whose_order_is_kept_and_that_expire(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=harness.name != "rabbitmq"), ttl=LONG)
    await harness.broker.publish([marked(harness, f"m{n}", key="k") for n in range(3)])
    (one,) = await harness.pull(1)
    assert (one.envelope.correlation_id, one.envelope.journal_attributes) == ("order-7", '{"tenant":"acme"}')
    await harness.retry(one)
    for again in await harness.pull(3):
        assert (again.envelope.correlation_id, again.envelope.journal_attributes) == ("order-7", '{"tenant":"acme"}')


async def test_arrivals_and_deliveries_carry_the_version_of_the_application(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("old")
    await harness.restart("2.1")
    await harness.publish("a")
    await harness.publish("a")
    await harness.publish("b", "c", "d")
    await harness.publish("later", due=LONG)
    one, *others = await harness.pull(5)
    assert len(others) == 4
    await harness.broker.settle([Ack(one.ack_id)])
    await harness.retry(others[0])
    await harness.pull(1)
    rows = await harness.rows()
    versions = {
        event: {row["app_version"] for row in rows if row["event"] == event and row.get("message_id") != "old"}
        for event in ("queue_created", "enqueued", "scheduled", "duplicate", "acked", "nacked")
    }
    assert versions == {
        "queue_created": {None}, "enqueued": {"2.1"}, "scheduled": {"2.1"}, "duplicate": {None},
        "acked": set(), "nacked": {None},
    }  # fmt: skip
    delivered = [row for row in rows if row["event"] == "delivered"]
    assert {(row["app_version"], row["worker"]) for row in delivered} == {("2.1", "worker-1")}
    assert [row["app_version"] for row in rows if row.get("message_id") == "old"] == [None, "2.1", None]


async def test_who_uses_none_of_it_has_chunks_that_end_with_their_rows(harness: Harness) -> None:
    await harness.declare()
    await some_life(harness)
    for chunk in await harness.broker.journal.read(SHARD):
        assert len(msgspec.msgpack.decode(chunk)) == 10
        if decode_chunk(chunk).event in ARRIVALS:
            assert {len(row) for row in decode_chunk(chunk).rows} <= {12, 16}
