"""Listing, filtering, inspecting and discarding dead letters."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from godwit.admin.dead_letters import DeadLetterQueueHandler
from godwit.admin.letter_filter import LetterFilter, cause_of
from godwit.admin.letter_pages import LARGEST_PAGE, PAGE_BYTES, next_size
from godwit.brokers.contract import Broker, Delivery, GiveUp, LetterId, Nack
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock, from_ms
from godwit.core.errors import LetterNotFound, QueueNotFound
from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import DEFAULT_GROUP, GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.testing import in_memory, run_until_empty
from tests.admin.builders import LEASE, Q, bury, bury_ids, error, letters_of, messages

MAILS, SHARED = QueueName("mails"), QueueName("given-up")


async def ids(handler: DeadLetterQueueHandler, which: LetterFilter) -> list[str]:
    return [letter.envelope.id async for letter in handler.letters(which)]


@pytest.fixture
async def handler(memory: MemoryBroker, clock: ManualClock) -> DeadLetterQueueHandler:
    return DeadLetterQueueHandler(memory, clock=clock)


async def test_letters_are_chosen_by_every_property(
    memory: MemoryBroker, handler: DeadLetterQueueHandler, clock: ManualClock
) -> None:
    await bury_ids(memory, "old", text="ValueError: no user 1")
    clock.advance(timedelta(hours=2))
    await bury_ids(memory, "net", kind=FailureKind.TRANSIENT, text="refused", error_type=ErrorType.NETWORK)
    await bury_ids(memory, "new", text="ValueError: no user 22", type="invoice")
    (old, *_) = await letters_of(memory)
    chosen = {
        "all": LetterFilter(name=Q),
        "every queue": LetterFilter(),
        "group": LetterFilter(name=Q, group=GroupName("other")),
        "kind": LetterFilter(name=Q, kind=FailureKind.TRANSIENT),
        "fingerprint": LetterFilter(name=Q, fingerprint=cause_of(old).fingerprint),
        "type": LetterFilter(name=Q, type="invoice"),
        "id": LetterFilter(name=Q, message_id=MessageId("net")),
        "older": LetterFilter(name=Q, older_than=timedelta(hours=1)),
        "newer": LetterFilter(name=Q, newer_than=timedelta(hours=1)),
        "before": LetterFilter(name=Q, died_before=from_ms(clock.now_ms())),
        "two": LetterFilter(name=Q, kind=FailureKind.PERMANENT, newer_than=timedelta(hours=1)),
    }
    assert {name: await ids(handler, which) for name, which in chosen.items()} == {
        "all": ["old", "net", "new"],
        "every queue": ["old", "net", "new"],
        "group": [],
        "kind": ["net"],
        "fingerprint": ["old", "new"],
        "type": ["new"],
        "id": ["net"],
        "older": ["old"],
        "newer": ["net", "new"],
        "before": ["old"],
        "two": ["new"],
    }


async def test_queues_that_share_a_dead_letter_queue_are_listed_under_its_name(broker: Broker) -> None:
    await broker.declare(QueueSpec(name=MAILS, dead_letter_queue=SHARED))
    await broker.declare(QueueSpec(name=Q, dead_letter_queue=SHARED))
    await bury_ids(broker, "a")
    await bury_ids(broker, "b", queue=MAILS)
    handler = DeadLetterQueueHandler(broker)
    assert await ids(handler, LetterFilter(name=SHARED)) == ["b", "a"]
    assert await ids(handler, LetterFilter(name=Q)) == ["a"]
    assert await ids(handler, LetterFilter()) == ["b", "a"]
    assert (await handler.replay_all(LetterFilter(name=SHARED))).done == 2
    assert await ids(handler, LetterFilter()) == []


async def test_every_letter_is_listed_once_when_a_queue_is_the_dead_letter_queue_of_another(
    memory: MemoryBroker, handler: DeadLetterQueueHandler
) -> None:
    await memory.declare(QueueSpec(name=MAILS, dead_letter_queue=Q))
    await bury_ids(memory, "a")
    await bury_ids(memory, "b", queue=MAILS)
    assert await ids(handler, LetterFilter(name=Q)) == ["b", "a"]
    assert await ids(handler, LetterFilter()) == ["b", "a"]
    assert await ids(handler, LetterFilter(name=MAILS)) == ["b"]


async def test_an_unknown_name_is_an_error_and_not_an_empty_list(broker: Broker) -> None:
    with pytest.raises(QueueNotFound):
        await DeadLetterQueueHandler(broker).count(LetterFilter(name=QueueName("ordres")))


async def test_listing_goes_on_behind_a_letter(broker: Broker) -> None:
    await bury_ids(broker, *(f"m{n:03}" for n in range(120)))
    handler = DeadLetterQueueHandler(broker)
    seen = [letter async for letter in handler.letters(LetterFilter(name=Q))]
    assert [letter.envelope.id for letter in seen] == [f"m{n:03}" for n in range(120)]
    rest = [letter.envelope.id async for letter in handler.letters(LetterFilter(name=Q), after=seen[99].id)]
    assert rest == [f"m{n:03}" for n in range(100, 120)]


async def test_an_inspection_shows_the_whole_history_with_tracebacks(broker: Broker) -> None:
    await broker.publish([seal(message) for message in messages("a", "b")])
    for delivery in await broker.pull(Q, DEFAULT_GROUP, worker="w", limit=2, lease=LEASE):
        await give_up_after(broker, delivery, tries=3)
    handler = DeadLetterQueueHandler(broker)
    for letter in await letters_of(broker):
        found = await handler.inspect(letter.id)
        assert found.letter == letter
        assert found.message == letter.envelope.open()
        assert found.raw is None
        assert [one.traceback for one in found.letter.errors] == ["at\ntry 1", "at\ntry 2", "at\ntry 3"]
        assert (found.cause.message, found.cause.type) == ("try 3", "unknown")


async def give_up_after(broker: Broker, delivery: Delivery, *, tries: int) -> None:
    for n in range(1, tries):
        await broker.settle([Nack(delivery.ack_id, error=error(f"try {n}"))])
        (delivery,) = await broker.pull(Q, DEFAULT_GROUP, worker="w", limit=1, lease=LEASE)
    await broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT, error(f"try {tries}"))])


async def test_a_body_that_is_no_message_is_shown_raw(broker: Broker) -> None:
    (sealed,) = [seal(message) for message in messages("a")]
    body = b"\xff\x00 certainly not JSON"
    await bury(broker, [msgspec.structs.replace(sealed, body=body, size=len(body))], error=error())
    (letter,) = await letters_of(broker)
    found = await DeadLetterQueueHandler(broker).inspect(letter.id)
    assert (found.message, found.raw) == (None, body)


@pytest.mark.parametrize(
    "letter_id",
    ["", "#", "orders", "orders#0#default#", "orders#0#default#000000000099", "orders#0#default#x", "gone#0#default#1"],
)
async def test_what_does_not_exist_cannot_be_inspected_replayed_or_discarded(broker: Broker, letter_id: str) -> None:
    await bury_ids(broker, "a")
    handler = DeadLetterQueueHandler(broker)
    with pytest.raises(LetterNotFound):
        await handler.inspect(LetterId(letter_id))
    with pytest.raises(LetterNotFound):
        await handler.replay(LetterId(letter_id))
    with pytest.raises(LetterNotFound):
        await handler.discard(LetterId(letter_id))
    with pytest.raises(LetterNotFound):
        await handler.edit_and_replay(LetterId(letter_id), {"priority": 1})
    assert await handler.count() == 1


async def test_one_letter_is_discarded_and_then_those_that_match(broker: Broker) -> None:
    await bury_ids(broker, "a", "b", "c")
    await bury_ids(broker, "keep", type="invoice")
    handler = DeadLetterQueueHandler(broker)
    await handler.discard((await letters_of(broker))[1].id)
    assert await ids(handler, LetterFilter(name=Q)) == ["a", "c", "keep"]
    outcome = await handler.discard_all(LetterFilter(name=Q, type="order"))
    assert (outcome.done, outcome.read, outcome.total) == (2, 3, 3)
    assert await ids(handler, LetterFilter(name=Q)) == ["keep"]


async def test_poison_messages_are_listed_apart(memory: MemoryBroker, clock: ManualClock) -> None:
    await memory.declare(QueueSpec(name=Q), [GroupSpec(name=DEFAULT_GROUP, max_crashes=2, forgive_outages=False)])
    await bury_ids(memory, "bad-data")
    await memory.publish([seal(message) for message in messages("killer")])
    for _ in range(2):
        assert await memory.pull(Q, DEFAULT_GROUP, worker="w", limit=1, lease=LEASE)
        clock.advance(LEASE)
        await memory.maintain()
    handler = DeadLetterQueueHandler(memory, clock=clock)
    (letter,) = [letter async for letter in handler.poison(Q)]
    assert (letter.envelope.id, letter.kind, letter.crashes) == ("killer", FailureKind.POISON, 2)
    assert cause_of(letter).type == "crashes"


async def test_expired_says_whether_its_time_or_its_handlers_time_was_over() -> None:
    mq = in_memory()
    policy = RetryPolicy(max_attempts=2, strategy=Strategy.IMMEDIATE)

    @mq.consumer("orders", time_limit=timedelta(milliseconds=5), retry_policy=policy)
    async def hang(message: Message) -> None:
        await asyncio.Event().wait()

    async with mq:
        slow, stale = messages("slow", "stale")
        await mq.enqueue(slow)
        await mq.enqueue(stale, expires_at=from_ms(mq.clock.now_ms() - 1))
        await run_until_empty(mq)
        found = {letter.envelope.id: letter async for letter in mq.dead_letters.letters()}
    assert {letter.kind for letter in found.values()} == {FailureKind.EXPIRED}
    assert cause_of(found[MessageId("slow")]).type == "timeout"
    assert cause_of(found[MessageId("stale")]).type == "ttl"


async def test_pages_are_small_when_letters_are_large(memory: MemoryBroker) -> None:
    await bury_ids(memory, "a")
    (letter,) = await letters_of(memory)
    large = msgspec.structs.replace(letter, envelope=msgspec.structs.replace(letter.envelope, size=PAGE_BYTES // 4))
    huge = msgspec.structs.replace(letter, envelope=msgspec.structs.replace(letter.envelope, size=PAGE_BYTES * 2))
    assert next_size(25, [letter]) == 50
    assert next_size(LARGEST_PAGE, [letter]) == LARGEST_PAGE
    assert next_size(25, [large]) == 3
    assert next_size(25, [huge]) == 1
