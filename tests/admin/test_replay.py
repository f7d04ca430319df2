"""Replaying dead letters: one, many, limited, into full queues, interrupted, changed."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from godwit.admin.dead_letters import DeadLetterQueueHandler, Progress
from godwit.admin.edits import edited, merged
from godwit.admin.letter_filter import LetterFilter
from godwit.admin.token_bucket import TokenBucket
from godwit.brokers.contract import Ack, Broker, DeadLetter, Delivery, LetterId
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock
from godwit.core.errors import InvalidMessage, InvalidSetting, QueueFull
from godwit.core.failures.failure import FailureKind
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.messages.envelope import seal, seal_all
from godwit.core.messages.marks import with_attributes
from godwit.core.messages.message import Message, Routing, Scheduling
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.testing import in_memory, run_until_empty
from tests.admin.builders import LEASE, Q, SlowTime, bury, bury_ids, error, letters_of, messages

MAIL = GroupName("mail")


async def taken(broker: Broker, limit: int = 1_000, group: GroupName = DEFAULT_GROUP) -> list[Delivery]:
    deliveries = await broker.pull(Q, group, worker="w", limit=limit, lease=LEASE)
    await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
    return deliveries


async def test_a_replayed_message_starts_anew_and_remembers(broker: Broker) -> None:
    await bury_ids(broker, "a")
    (letter,) = await letters_of(broker)
    await DeadLetterQueueHandler(broker).replay(letter.id)
    (delivery,) = await taken(broker)
    assert (delivery.message_id, delivery.attempt, delivery.failures, delivery.crashes) == ("a", 1, 0, 0)
    assert delivery.errors == letter.errors
    assert await letters_of(broker) == []


async def test_only_what_matches_is_replayed_and_progress_is_told(broker: Broker) -> None:
    await bury_ids(broker, *(f"t{n}" for n in range(300)), kind=FailureKind.TRANSIENT)
    await bury_ids(broker, *(f"p{n}" for n in range(100)))
    told: list[Progress] = []
    handler = DeadLetterQueueHandler(broker)
    outcome = await handler.replay_all(LetterFilter(name=Q, kind=FailureKind.TRANSIENT), progress=told.append)
    assert outcome == told[-1] == Progress(done=300, missing=0, read=400, total=400)
    assert [state.done for state in told] == sorted(state.done for state in told)
    assert len(told) > 2
    assert {letter.kind for letter in await letters_of(broker)} == {FailureKind.PERMANENT}
    assert [one.message_id for one in await taken(broker)] == [f"t{n}" for n in range(300)]


async def test_messages_that_die_again_are_left_alone_until_the_next_replay() -> None:
    mq = in_memory()
    handled: Counter[str] = Counter()

    @mq.consumer("orders", retry_policy=RetryPolicy(max_attempts=1, strategy=Strategy.NONE))
    async def refuse(message: Message) -> None:
        handled[message.id] += 1
        raise ValueError(message.id)

    async with mq:
        await mq.enqueue_many(messages(*(f"m{n}" for n in range(150))))
        await run_until_empty(mq)
        assert await mq.dead_letters.count() == 150

        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        outcome = await mq.dead_letters.replay_all(LetterFilter(name=Q), rate=20_000, progress=lambda _: None)
        worker.stop()
        await running
    assert outcome.done == 150
    assert set(handled.values()) <= {1, 2}


async def test_a_continued_replay_can_leave_out_what_died_since_it_began(
    memory: MemoryBroker, clock: ManualClock
) -> None:
    await bury_ids(memory, "a", "b")
    clock.advance(timedelta(minutes=1))
    began = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    await bury_ids(memory, "again")
    outcome = await DeadLetterQueueHandler(memory, clock=clock).replay_all(LetterFilter(name=Q, died_before=began))
    assert outcome.done == 2
    assert [letter.envelope.id for letter in await letters_of(memory)] == ["again"]


async def test_letters_somebody_else_took_are_counted_as_missing(memory: MemoryBroker) -> None:
    await bury_ids(memory, "a", "b", "c")
    first, *_ = await letters_of(memory)
    page = memory.dead_letters.page

    async def slow_page(*words: Any, **options: Any) -> list[DeadLetter]:
        found = await page(*words, **options)
        await memory.dead_letters.discard([first.id])
        return found

    memory.dead_letters.page = slow_page  # type: ignore[method-assign]
    outcome = await DeadLetterQueueHandler(memory).replay_all(LetterFilter(name=Q))
    assert (outcome.done, outcome.missing) == (2, 1)


# Pace


async def test_a_bucket_lets_through_its_rate_and_no_more() -> None:
    time = SlowTime()
    bucket = TokenBucket(50, clock=time.clock, sleep=time.sleep)
    began, passed = time.clock.now_ms(), 0
    while passed < 500:
        passed += await bucket.take(500 - passed)
        seconds = (time.clock.now_ms() - began) / 1000
        assert passed <= 50 * seconds + 5
    assert 9.5 <= (time.clock.now_ms() - began) / 1000 <= 11


async def test_a_bucket_gives_one_at_a_time_when_slow_and_no_more_than_asked_for() -> None:
    time = SlowTime()
    bucket = TokenBucket(0.5, clock=time.clock, sleep=time.sleep)
    assert [await bucket.take(10) for _ in range(3)] == [1, 1, 1]
    assert sum(time.slept) == pytest.approx(4, abs=0.01)
    assert await TokenBucket(1_000, clock=time.clock, sleep=time.sleep).take(3) == 3


async def test_a_clock_that_goes_back_gives_nothing_and_takes_nothing() -> None:
    time = SlowTime()
    bucket = TokenBucket(10, clock=time.clock, sleep=time.sleep)
    assert await bucket.take(1) == 1
    time.clock.advance(timedelta(hours=-1))
    assert await bucket.take(1) == 1
    assert sum(time.slept) == pytest.approx(0.1, abs=0.01)


@pytest.mark.parametrize("rate", [0, -1, float("inf"), float("nan")])
async def test_an_impossible_rate_is_refused_before_anything_happens(memory: MemoryBroker, rate: float) -> None:
    await bury_ids(memory, "a")
    with pytest.raises(InvalidSetting):
        await DeadLetterQueueHandler(memory).replay_all(rate=rate)
    assert len(await letters_of(memory)) == 1


async def test_a_limited_replay_takes_its_time(memory: MemoryBroker) -> None:
    await bury_ids(memory, *(f"m{n}" for n in range(200)))
    time = SlowTime()
    handler = DeadLetterQueueHandler(memory, timer=time.clock, sleep=time.sleep)
    assert (await handler.replay_all(LetterFilter(name=Q), rate=100)).done == 200
    assert 1.8 <= sum(time.slept) <= 2.2


# Full queues


async def test_a_full_queue_is_waited_for(broker: Broker) -> None:
    await bury_ids(broker, *(f"m{n:03}" for n in range(100)))
    await broker.declare(QueueSpec(name=Q, max_size=7))
    got: list[str] = []

    async def work_instead_of_sleeping(_: float) -> None:
        got.extend(delivery.message_id for delivery in await taken(broker, 5))

    outcome = await DeadLetterQueueHandler(broker, sleep=work_instead_of_sleeping).replay_all(LetterFilter(name=Q))
    got += [delivery.message_id for delivery in await taken(broker)]
    assert outcome.done == 100
    assert sorted(got) == [f"m{n:03}" for n in range(100)]


@pytest.mark.parametrize("change", [None, {"priority": 99}])
async def test_patience_with_a_full_queue_ends_and_what_was_done_stays_done(
    memory: MemoryBroker, change: dict[str, int] | None
) -> None:
    await bury_ids(memory, *(f"m{n:03}" for n in range(50)))
    await memory.declare(QueueSpec(name=Q, max_size=20))
    time, told = SlowTime(), list[Progress]()
    handler = DeadLetterQueueHandler(memory, timer=time.clock, sleep=time.sleep)
    with pytest.raises(QueueFull):
        await handler.replay_all(
            LetterFilter(name=Q), change=change, progress=told.append, patience=timedelta(seconds=30)
        )
    assert told[-1].done == 20
    assert 30 <= sum(time.slept) <= 33
    assert len(await letters_of(memory)) == 30
    assert len(await taken(memory)) == 20


# Editing


async def test_an_edited_message_is_published_and_the_letter_is_gone(broker: Broker) -> None:
    await bury_ids(broker, "a")
    (letter,) = await letters_of(broker)
    new_id = await DeadLetterQueueHandler(broker).edit_and_replay(
        letter.id, {"payload": {"fixed": True}, "attributes": {"by": "ada"}, "priority": 90}
    )
    (delivery,) = await taken(broker)
    message = delivery.open()
    assert (message.id, message.replay_of, delivery.envelope.replay_of) == (new_id, "a", "a")
    assert (message.payload, message.attributes, message.priority) == ({"id": "a", "fixed": True}, {"by": "ada"}, 90)
    assert (delivery.attempt, delivery.failures, delivery.crashes) == (1, 0, 0)
    assert await letters_of(broker) == []


async def test_a_function_edits_as_well(memory: MemoryBroker) -> None:
    await bury_ids(memory, "a", "b")
    outcome = await DeadLetterQueueHandler(memory).replay_all(
        LetterFilter(name=Q), change=lambda message: msgspec.structs.replace(message, payload=[message.id])
    )
    assert outcome.done == 2
    assert [delivery.open().payload for delivery in await taken(memory)] == [["a"], ["b"]]


async def test_a_crash_between_publishing_and_discarding_publishes_nothing_twice(broker: Broker) -> None:
    await bury_ids(broker, "a", "b")
    handler = DeadLetterQueueHandler(broker)
    discard = broker.dead_letters.discard

    async def crash(letters: Any, *, actor: str | None = None) -> list[LetterId]:
        raise RuntimeError("killed")

    broker.dead_letters.discard = crash  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="killed"):
        await handler.replay_all(LetterFilter(name=Q), change={"priority": 90})
    assert len(await letters_of(broker)) == 2
    broker.dead_letters.discard = discard  # type: ignore[method-assign]
    assert (await handler.replay_all(LetterFilter(name=Q), change={"priority": 90})).done == 2
    assert [delivery.open().replay_of for delivery in await taken(broker)] == ["a", "b"]


async def test_the_new_id_depends_on_the_letter_and_the_content_alone(memory: MemoryBroker) -> None:
    await bury_ids(memory, "a", "b")
    first, second = await letters_of(memory)
    now, later = datetime(2030, 1, 1, tzinfo=UTC), datetime(2031, 1, 1, tzinfo=UTC)
    new_id = edited(first, {"priority": 1}, now).id
    assert edited(first, {"priority": 1}, later).id == new_id
    assert edited(first, {"priority": 2}, now).id != new_id
    assert edited(second, {"priority": 1}, now).id != new_id


async def test_an_edited_copy_goes_to_its_group_alone_unless_the_change_says_otherwise(memory: MemoryBroker) -> None:
    await memory.declare(QueueSpec(name=Q), [GroupSpec(name=MAIL)])
    await bury(memory, seal_all(messages("a", "b", "c")), error=error())
    assert len(await taken(memory, group=MAIL)) == 3
    first, second, third = await letters_of(memory)
    handler = DeadLetterQueueHandler(memory)
    await handler.edit_and_replay(first.id, {"priority": 90})
    assert (len(await taken(memory)), len(await taken(memory, group=MAIL))) == (1, 0)
    await handler.edit_and_replay(second.id, {"routing": {"consumer_group": "mail"}})
    assert (len(await taken(memory)), len(await taken(memory, group=MAIL))) == (0, 1)
    await memory.declare(QueueSpec(name=QueueName("other")), [GroupSpec(name=MAIL), GroupSpec(name=DEFAULT_GROUP)])
    await handler.edit_and_replay(third.id, {"queue": "other"})
    stats = {queue.name: sum(group.ready for group in queue.groups) for queue in await memory.stats()}
    assert stats == {"orders": 0, "other": 2}


async def test_an_edited_message_is_due_at_once_and_lives_anew(memory: MemoryBroker, clock: ManualClock) -> None:
    now = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    original = Message(
        queue=Q,
        routing=Routing(target_queue=Q),
        scheduling=Scheduling(deliver_at=now, campaign="spring"),
        expires_at=now + timedelta(hours=1),
    )
    await memory.declare(QueueSpec(name=Q, ttl=timedelta(hours=2)))
    await bury(memory, [seal(original)], error=error())
    clock.advance(timedelta(days=1))
    (letter,) = await letters_of(memory)
    await DeadLetterQueueHandler(memory, clock=clock).edit_and_replay(letter.id, {"payload": 1})
    await memory.maintain()
    (delivery,) = await taken(memory)
    message = delivery.open()
    assert message.expires_at is None
    assert message.scheduling == Scheduling(campaign="spring")


async def test_a_whole_message_replaces_what_cannot_be_read(memory: MemoryBroker) -> None:
    (sealed,) = seal_all(messages("a"))
    await bury(memory, [msgspec.structs.replace(sealed, body=b"?", size=1)], error=error())
    (letter,) = await letters_of(memory)
    handler = DeadLetterQueueHandler(memory)
    with pytest.raises(InvalidMessage, match="is not a message"):
        await handler.edit_and_replay(letter.id, {"priority": 1})
    await handler.edit_and_replay(letter.id, Message(payload="written by hand"))
    (delivery,) = await taken(memory)
    assert (delivery.open().payload, delivery.open().replay_of) == ("written by hand", "a")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"id": "x"}, "cannot be changed"),
        ({"prioritty": 1}, "cannot be changed"),
        ({"priority": "high"}, "does not fit"),
        ({"priority": 101}, "priority is 101"),
        ({"attributes": {"goog": "x"}}, "reserved"),
        ({"expires_at": "2030-01-01T00:00:00"}, "does not fit"),
        (lambda _: None, "returned NoneType"),
        (lambda message: msgspec.structs.replace(message, payload={1, 2}), "JSON"),
    ],
)
async def test_a_bad_edit_is_refused_and_the_letter_stays(memory: MemoryBroker, change: Any, problem: str) -> None:
    await bury_ids(memory, "a")
    (letter,) = await letters_of(memory)
    with pytest.raises(InvalidMessage, match=problem):
        await DeadLetterQueueHandler(memory).edit_and_replay(letter.id, change)
    assert await letters_of(memory) == [letter]
    assert await taken(memory) == []


async def test_an_edit_is_checked_against_the_schema_of_its_type() -> None:
    class Order(msgspec.Struct):
        id: str

    mq = in_memory()
    async with mq:
        await mq.broker.declare(QueueSpec(name=Q))
        await bury_ids(mq.broker, "a")
        mq.schemas.register("order", Order)
        (letter,) = await letters_of(mq.broker)
        with pytest.raises(InvalidMessage):
            await mq.dead_letters.edit_and_replay(letter.id, {"payload": {"id": 7}})
        assert await mq.dead_letters.edit_and_replay(letter.id, {"payload": {"id": "seven"}})


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # from the appendix of RFC 7386
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_a_merge_patch_does_what_the_standard_says(target: Any, patch: Any, result: Any) -> None:
    assert merged(target, patch) == result


async def test_a_message_given_up_by_hand_is_a_dead_letter_with_its_reason() -> None:
    mq = in_memory()
    async with mq:
        await mq.broker.declare(QueueSpec(name=Q))
        await mq.enqueue(messages("a")[0])
        (delivery,) = await mq.dequeue(Q)
        await mq.reject_message(delivery, "out of stock", requeue=False)
        (letter,) = [letter async for letter in mq.dead_letters.letters()]
    assert letter.kind is FailureKind.PERMANENT
    assert letter.dead_at_ms == mq.clock.now_ms()
    assert letter.errors[-1].message == "Permanent: out of stock"
    assert letter.envelope.id == MessageId("a")


async def test_who_replays_edits_and_discards_is_in_the_journal(broker: Broker) -> None:
    await bury_ids(broker, "a", "b", "c", "d", "e")
    handler = DeadLetterQueueHandler(broker, actor="ada")
    first, second, third, *_ = await letters_of(broker)
    await handler.replay(first.id)
    await handler.discard(second.id)
    await handler.edit_and_replay(third.id, {"priority": 90})
    await handler.replay_all(LetterFilter(name=Q, message_id="d"))
    await handler.discard_all(LetterFilter(name=Q))
    rows = [row for chunk in await broker.journal.read(f"{Q}#0") for row in rows_of(decode_chunk(chunk), f"{Q}#0")]
    asked = [(row["event"], row["message_id"], row["actor"]) for row in rows if row["actor"] is not None]
    assert asked == [
        ("replayed", "a", "ada"), ("discarded", "b", "ada"), ("discarded", "c", "ada"), ("replayed", "d", "ada"),
        ("discarded", "e", "ada"),
    ]  # fmt: skip
    assert {row["event"] for row in rows} >= {"replayed", "discarded"}


async def test_an_edited_message_keeps_the_attributes_that_its_queue_wants_in_the_journal(broker: Broker) -> None:
    message = Message(id=MessageId("a"), queue=Q, attributes={"tenant": "acme", "colour": "red"})
    await bury(broker, [with_attributes(seal(message), message.attributes, ["tenant"])])
    (letter,) = await letters_of(broker)
    await DeadLetterQueueHandler(broker).edit_and_replay(letter.id, {"attributes": {"tenant": "umbrella"}})
    (delivery,) = await taken(broker)
    assert delivery.envelope.journal_attributes == '{"tenant":"umbrella"}'
