"""Hostile values: a call is refused with a typed error before anything changes, or works; the queue goes on anyhow.

Values of the right type and any size; what is of a wrong type is refused where it would otherwise be met half-way.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from typing import Any, Final

import msgspec
import pytest

from godwit.brokers.contract import NO_WAIT, Ack, GiveUp, HandBack, LetterId, Nack, Settlement
from godwit.core.clock import from_ms
from godwit.core.errors import GodwitError, InvalidSetting
from godwit.core.failures.failure import (
    MESSAGE_CHARACTERS,
    TRACEBACK_CHARACTERS,
    ErrorType,
    FailureKind,
    ProcessingError,
)
from godwit.core.failures.retry import Backoff, RetryPolicy
from godwit.core.journal.shards import Position, shard_name
from godwit.core.limits import LATEST_MS, LONGEST
from godwit.core.messages.checks import (
    MAX_ATTRIBUTE_VALUE_BYTES,
    MAX_MESSAGE_BYTES,
    MAX_ORDERING_KEY_BYTES,
    MAX_PAYLOAD_DEPTH,
)
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message, MessageMetadata, Scheduling
from godwit.core.names import AckId, MessageId, QueueName
from godwit.core.queues import FlowControl, GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q, ids_of
from tests.waiting import soon

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
PAST: Final = {
    "year 1": datetime.min.replace(tzinfo=UTC),
    "year 1 east": datetime.min.replace(tzinfo=EAST),
    "1969": datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC),
    "1970": datetime(1970, 1, 1, tzinfo=UTC),
    "just after 1970": datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
}
FUTURE: Final = {
    "year 2106": datetime(2106, 2, 8, tzinfo=UTC),
    "year 2262": datetime(2262, 4, 12, tzinfo=UTC),
    "the latest": from_ms(LATEST_MS),
    "year 9999": datetime.max.replace(tzinfo=UTC),
    "year 9999 west": datetime.max.replace(tzinfo=WEST),
}
LONGEST_NAME: Final = "n" * 255
NUMBERS: Final = count()
FEWEST_GROUPS_REFUSED: Final = 128
Call = Callable[[Harness], Awaitable[object]]
LOOSE: Any = object()


async def goes_on(harness: Harness, *, queue: str = Q, group: str = G) -> None:
    """Show that a fresh message still goes through, at once."""
    fresh = f"fresh-{next(NUMBERS)}"

    async def through() -> None:
        await harness.publish(fresh, queue=queue)
        found = await harness.pull(100, queue=queue, group=group, lease=LONG)
        assert fresh in ids_of(found)
        assert await harness.broker.settle([Ack(one.ack_id) for one in found]) == []
        await harness.broker.maintain()

    await soon(through(), 1)


async def unchanged(harness: Harness, call: Awaitable[object]) -> GodwitError:
    """Show that a call is refused with a typed error, and changes nothing."""
    before = await harness.broker.stats(), await harness.events()
    with pytest.raises(GodwitError) as caught:
        await call
    assert str(caught.value)
    assert (await harness.broker.stats(), await harness.events()) == before
    return caught.value


# Instants


@pytest.mark.promise(9)
async def test_a_message_that_expired_at_any_time_past_is_a_dead_letter_and_stops_nothing(harness: Harness) -> None:
    await harness.declare()
    for name, instant in PAST.items():
        await harness.broker.publish([seal(Message(id=name.replace(" ", "-"), queue=Q, expires_at=instant))])
        await goes_on(harness)
    letters = await harness.letters()
    assert sorted(ids_of(letters)) == sorted(name.replace(" ", "-") for name in PAST)
    assert {letter.kind for letter in letters} == {FailureKind.EXPIRED}
    assert (await harness.stats()).depth == 0


@pytest.mark.promise(4)
async def test_a_message_that_was_due_at_any_time_past_is_delivered_now(harness: Harness) -> None:
    await harness.declare()
    for name, instant in PAST.items():
        known = name.replace(" ", "-")
        scheduling = Scheduling(deliver_at=instant)
        await harness.broker.publish([seal(Message(id=known, queue=Q, scheduling=scheduling, created_at=instant))])
        assert await harness.ids() == [known]
        await goes_on(harness)


@pytest.mark.promise(4)
async def test_a_message_of_any_time_to_come_waits_and_stops_nothing(harness: Harness) -> None:
    await harness.declare(ttl=timedelta.max, dedup_window=timedelta.max)
    for name, instant in FUTURE.items():
        known = name.replace(" ", "-")
        due = Message(id=f"due-{known}", queue=Q, scheduling=Scheduling(deliver_at=instant), created_at=harness.at())
        ends = Message(id=f"ends-{known}", queue=Q, expires_at=instant, created_at=instant)
        await harness.broker.publish([seal(due), seal(ends)])
        assert await harness.ids() == [f"ends-{known}"]
        await goes_on(harness)
    assert (await harness.stats()).delayed == len(FUTURE)
    snapshot = await harness.broker.journal.snapshot(Q)
    assert len(snapshot.copies) == len(FUTURE)
    for copy in snapshot.copies:
        from_ms(copy.ready_at or 0)
    cancelled = [await harness.broker.cancel(Q, MessageId(f"due-{name.replace(' ', '-')}")) for name in FUTURE]
    assert all(cancelled)


# Durations


@pytest.mark.promise(4)
@pytest.mark.parametrize("delay", [timedelta.max, LONGEST, timedelta(days=300_000)])
async def test_a_retry_after_any_time_waits_and_stops_nothing(harness: Harness, delay: timedelta) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one(lease=LONG), delay)
    await goes_on(harness)
    assert (await harness.stats()).delayed == 1
    assert [row["ready_at"] > harness.now_ms for row in await harness.rows() if row["event"] == "nacked"] == [True]


@pytest.mark.promise(4)
@pytest.mark.parametrize("delay", [timedelta(milliseconds=-1), timedelta.min, timedelta(microseconds=-1)])
async def test_a_retry_in_the_past_is_one_at_once_and_refuses_nothing(harness: Harness, delay: timedelta) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    one, two = await harness.pull(2, lease=LONG)
    assert await harness.broker.settle([Nack(one.ack_id, delay, harness.error("x")), Ack(two.ack_id)]) == []
    assert await harness.ids() == ["a"]


@pytest.mark.promise(2)
async def test_a_pull_may_wait_without_end(live: Harness) -> None:
    await live.declare()
    await live.publish("a")
    assert ids_of(await live.pull(wait=timedelta.max, lease=LONG)) == ["a"]
    await goes_on(live)


@pytest.mark.promise(5)
async def test_settings_without_end_are_kept_and_read_again(harness: Harness) -> None:
    endless = sys.maxsize
    group = GroupSpec(
        name=G,
        flow_control=FlowControl(max_messages=endless, max_bytes=2**80),
        max_crashes=endless,
        max_delivery_attempts=endless,
        backoff=Backoff(minimum=timedelta.max, maximum=timedelta.max),
    )
    await harness.declare(
        group,
        priority=endless,
        max_size=endless,
        max_bytes=2**80,
        max_delayed=endless,
        ttl=timedelta.max,
        dedup_window=timedelta.max,
        journal_keep=timedelta.max,
        journal_max_bytes=2**80,
    )
    await goes_on(harness)
    await harness.restart()
    await goes_on(harness)
    await harness.broker.journal.trim()
    await harness.publish("a", due=timedelta(milliseconds=1))
    await harness.let_pass(timedelta(milliseconds=400))
    await harness.pull_one()
    await harness.let_pass(timedelta(milliseconds=800))
    await goes_on(harness)
    assert (await harness.stats()).delayed == 1  # its lease ran out: it waits as long as the backoff says


@pytest.mark.promise(11)
@pytest.mark.parametrize("ttl", [timedelta.max, timedelta.min, timedelta(0), LONGEST])
async def test_a_shared_value_may_live_without_end_or_not_at_all(harness: Harness, ttl: timedelta) -> None:
    await harness.broker.shared.put("key", b"value", expected=None, ttl=ttl)
    entry = await harness.broker.shared.get("key")
    assert (entry is not None) is (ttl > timedelta(0))
    await harness.broker.maintain()
    assert [*await harness.broker.shared.scan("")] == (["key"] if ttl > timedelta(0) else [])


# Bodies, names and texts

BODIES: Final[dict[str, dict[str, Any]]] = {
    "nothing": {"payload": None},
    "deep": {"payload": None},
    "wide": {"payload": [{}] * 100_000},
    "10 MB": {"payload": "x" * (MAX_MESSAGE_BYTES - 1_000)},
    "NUL": {"payload": {"a\0b": "\0"}, "ordering_key": "k\0", "attributes": {"a\0": "\0"}},
    "every plane": {"payload": "\u007f\uffff\U0010ffff", "ordering_key": "\U0010ffff" * 256},
    "numbers": {"payload": [2**63, -(2**64), 1e308, 5e-324, -0.0, 10**300]},
    "longest texts": {
        "ordering_key": "k" * MAX_ORDERING_KEY_BYTES,
        "attributes": {f"{n:0>250}": "v" * MAX_ATTRIBUTE_VALUE_BYTES for n in range(100)},
        "type": "t" * 100,
        "replay_of": "r" * 255,
        "metadata": MessageMetadata(correlation_id="c" * 100_000, source="s" * 100_000),
    },
    "a policy without end": {"retry_policy": RetryPolicy(max_attempts=sys.maxsize, max_delay=timedelta.max)},
    "schedule": {"scheduling": Scheduling(schedule_id="s" * 10_000, campaign="c\0", ends_at=FUTURE["year 9999 west"])},
}
value: Any = 1
for _ in range(MAX_PAYLOAD_DEPTH):
    value = {"a": value}
BODIES["deep"] = {"payload": value}


@pytest.mark.promise(1)
@pytest.mark.parametrize("case", BODIES)
async def test_a_message_of_any_content_comes_as_it_went_and_stops_nothing(harness: Harness, case: str) -> None:
    await harness.declare(journal_body="on")
    message = Message(id=MessageId("i" * 255), queue=Q, created_at=harness.at(), **BODIES[case])
    sealed = seal(message)
    await harness.broker.publish([sealed])
    delivery = await harness.pull_one(lease=LONG)
    assert delivery.open() == sealed.open()
    assert delivery.envelope.ordering_key == message.ordering_key
    await harness.give_up(delivery)
    (letter,) = await harness.letters()
    assert letter.envelope.body == sealed.body
    assert await harness.broker.dead_letters.replay([letter.id]) == []
    assert await harness.ids() == [message.id]
    await goes_on(harness)


@pytest.mark.promise(7)
async def test_keys_of_any_text_keep_their_order(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=True))
    for key in ("k\0", "\U0010ffff" * 256, "\r\n", "k" * MAX_ORDERING_KEY_BYTES, "\u2028", " "):
        names = [f"first-{next(NUMBERS)}", f"second-{next(NUMBERS)}"]
        await harness.publish(*names, key=key)
        assert await harness.ids() == names[:1]
        assert await harness.ids() == names[1:]
    await goes_on(harness)


TEXTS: Final = {
    "surrogate": "\ud800 lone",
    "NUL": "a\0b",
    "long": "x" * 1_000_000,
    "long of many bytes": "\U0001f600" * 100_000,
    "none": "",
    "odd": LOOSE,
}


@pytest.mark.promise(6)
@pytest.mark.parametrize("case", TEXTS)
async def test_an_error_of_any_text_is_kept_and_stops_nothing(harness: Harness, case: str) -> None:
    text: Any = TEXTS[case]
    await harness.declare()
    await harness.publish("a", "b")
    error = ProcessingError(message=text, traceback=text, timestamp=datetime.max.replace(tzinfo=WEST))
    one, two = await harness.pull(2, lease=LONG)
    assert await harness.broker.settle([Nack(one.ack_id, NO_WAIT, error), Ack(two.ack_id)]) == []
    again = await harness.pull_one(lease=LONG)
    assert await harness.broker.settle([GiveUp(again.ack_id, FailureKind.PERMANENT, error)]) == []
    (letter,) = await harness.letters()
    assert len(letter.errors) == 2
    for kept in letter.errors:
        assert len(kept.message) <= MESSAGE_CHARACTERS * 6
        assert len(kept.traceback or "") <= TRACEBACK_CHARACTERS * 6
        msgspec.json.encode(kept)
    await goes_on(harness)


async def test_an_error_of_the_wrong_type_is_made_one_that_can_be_kept(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    odd: Any = {"type": "nonsense", "message": None, "retryable": 7, "timestamp": datetime(2026, 1, 1, 12)}
    delivery = await harness.pull_one(lease=LONG)
    assert await harness.broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT, ProcessingError(**odd))]) == []
    ((error,),) = [letter.errors for letter in await harness.letters()]
    assert (error.type, error.message, error.retryable) == (ErrorType.UNKNOWN, "None", True)
    await goes_on(harness)


WRONG_SETTLEMENTS: Final[dict[str, Callable[[AckId], Any]]] = {
    "nothing": lambda _: None,
    "ack id": lambda _: Ack(LOOSE),
    "ack id that cannot be hashed": lambda _: HandBack([]),  # type: ignore[arg-type]
    "run of a text": lambda ack_id: Ack(ack_id, "5"),  # type: ignore[arg-type]
    "run of True": lambda ack_id: Ack(ack_id, True),
    "result": lambda ack_id: Ack(ack_id, 5, LOOSE),
    "delay": lambda ack_id: Nack(ack_id, LOOSE),
    "delay that is no number": lambda ack_id: Nack(ack_id, float("nan")),  # type: ignore[arg-type]
    "error": lambda ack_id: Nack(ack_id, NO_WAIT, LOOSE),
    "kind": lambda ack_id: GiveUp(ack_id, "nonsense"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("case", WRONG_SETTLEMENTS)
async def test_a_settlement_that_is_none_refuses_the_call_before_anything_changes(harness: Harness, case: str) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    one, two = await harness.pull(2, lease=LONG)
    await unchanged(harness, harness.broker.settle([Ack(one.ack_id), WRONG_SETTLEMENTS[case](two.ack_id)]))
    assert await harness.broker.settle([Ack(one.ack_id), Ack(two.ack_id)]) == []
    await goes_on(harness)


@pytest.mark.promise(11)
@pytest.mark.parametrize("run_ms", [-1, 2**31, 2**63, 2**80])
async def test_a_run_of_any_length_is_kept_within_the_limits(harness: Harness, run_ms: int) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    one, two = await harness.pull(2, lease=LONG)
    settlements: list[Settlement] = [Ack(one.ack_id, run_ms), GiveUp(two.ack_id, FailureKind.PERMANENT, run_ms=run_ms)]
    assert await harness.broker.settle(settlements) == []
    ends = [row["run_ms"] for row in await harness.rows() if row["event"] in {"acked", "dead_lettered"}]
    assert len(ends) == 2
    assert all(0 <= end < 2**31 for end in ends)


STRANGE_IDS: Final = ("", "#", "####", "orders#0#default#", "\ud800", "a\0b", "x" * 100_000, "orders#0#default#\ud800")
NO_LEASES: Final = ("orders#0#default#1:1:1", "orders#256#default#x", "orders#0#nobody#x", "nowhere#0#default#x")


@pytest.mark.promise(3)
async def test_ack_ids_of_any_text_are_unknown_and_hurt_no_other(harness: Harness) -> None:
    await harness.declare()
    for strange in map(AckId, STRANGE_IDS + NO_LEASES):
        await harness.publish(fresh := f"fresh-{next(NUMBERS)}")
        delivery = await harness.pull_one(lease=LONG)
        assert delivery.message_id == fresh
        assert await harness.broker.extend([strange, delivery.ack_id], LONG) == [strange]
        assert harness.broker.extend_now([strange, delivery.ack_id], LONG) == [strange]
        assert await harness.broker.settle([HandBack(strange), Ack(strange), Ack(delivery.ack_id)]) == [strange] * 2
    await goes_on(harness)


@pytest.mark.promise(3)
async def test_an_ack_id_given_twice_in_one_call_counts_once(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(lease=LONG)
    same: list[Settlement] = [Ack(delivery.ack_id), Nack(delivery.ack_id), Ack(delivery.ack_id, 5)]
    assert await harness.broker.settle(same) == [delivery.ack_id] * 2
    await goes_on(harness)


@pytest.mark.promise(6)
async def test_letters_and_messages_of_any_id_do_not_exist(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.give_up(await harness.pull_one(lease=LONG))
    (letter,) = await harness.letters()
    for strange in map(LetterId, STRANGE_IDS):
        assert await harness.broker.dead_letters.discard([strange]) == [strange]
        assert await harness.broker.dead_letters.replay([strange]) == [strange]
        assert not await harness.broker.cancel(Q, MessageId(strange))
        with suppress(GodwitError):
            await harness.letters(after=strange)
    assert await harness.broker.dead_letters.replay([letter.id, letter.id]) in ([], [letter.id])
    await goes_on(harness)


@pytest.mark.promise(11)
async def test_positions_and_readers_of_any_value_are_refused_or_kept(harness: Harness) -> None:
    await harness.declare()
    await goes_on(harness)
    journal = harness.broker.journal
    epoch = (await harness.rows())[0]["epoch"]
    for seq in (-1, 0, 2**53, 2**63, 2**80):
        for call in (
            journal.read(shard_name(Q), Position(epoch, seq)),
            journal.commit("reader", shard_name(Q), Position(epoch, seq)),
        ):
            with suppress(GodwitError):
                await call
    for reader in STRANGE_IDS:
        with suppress(GodwitError):
            await journal.commit(reader, shard_name(Q), Position(epoch, 1))
            assert (await journal.committed(reader))[shard_name(Q)].seq == 1
        with suppress(GodwitError):
            await journal.forget(reader)
    await journal.forget("reader")
    await journal.trim()
    await goes_on(harness)


# Calls

CALLS: Final[dict[str, Call]] = {
    "a pull of a queue with a surrogate": lambda h: h.pull(queue="\ud800"),
    "a pull of a queue with NUL": lambda h: h.pull(queue="a\0b"),
    "a pull of an endless name": lambda h: h.pull(queue="x" * 100_000),
    "a pull of a group with a surrogate": lambda h: h.pull(group="\ud800"),
    "a worker with a surrogate": lambda h: h.pull(worker="\ud800"),
    "a worker with NUL": lambda h: h.pull(worker="a\0b"),
    "an endless worker": lambda h: h.pull(worker="w" * 256),
    "a worker that is none": lambda h: h.pull(worker=LOOSE),
    "more than the most": lambda h: h.pull(10_001),
    "half a message": lambda h: h.pull(0.5),  # type: ignore[arg-type]
    "a limit of True": lambda h: h.pull(limit=True),
    "a limit of text": lambda h: h.pull("5"),  # type: ignore[arg-type]
    "half a byte": lambda h: h.pull(max_bytes=0.5),  # type: ignore[arg-type]
    "a lease without end": lambda h: h.pull(lease=timedelta.max),
    "a lease of a text": lambda h: h.pull(lease="5"),  # type: ignore[arg-type]
    "a wait of a text": lambda h: h.pull(wait="5"),  # type: ignore[arg-type]
    "a purge of a surrogate": lambda h: h.broker.purge("\ud800"),
    "a removal of a surrogate": lambda h: h.broker.remove("\ud800"),
    "a removal of a group with NUL": lambda h: h.broker.remove(Q, "a\0b"),
    "a cancel in a queue with a surrogate": lambda h: h.broker.cancel(QueueName("\ud800"), MessageId("a")),
    "a snapshot of a surrogate": lambda h: h.broker.journal.snapshot("\ud800"),
    "letters of a surrogate": lambda h: h.letters("\ud800"),
    "letters of half a page": lambda h: h.letters(limit=0.5),
    "a journal of a surrogate": lambda h: h.broker.journal.read("\ud800", Position("epoch", 1)),
    "a journal of True": lambda h: h.broker.journal.read(shard_name(Q), limit=True),
}


@pytest.mark.parametrize("case", CALLS)
async def test_a_call_with_what_cannot_be_is_refused_and_changes_nothing(harness: Harness, case: str) -> None:
    await harness.declare()
    await harness.publish("a")
    await unchanged(harness, CALLS[case](harness))
    await goes_on(harness)


async def test_the_largest_numbers_of_a_call_work(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    assert ids_of(await harness.pull(10_000, max_bytes=2**80, worker="w" * 255, lease=LONG)) == ["a", "b"]
    assert len(await harness.broker.journal.read(shard_name(Q), limit=2**80)) > 0
    assert await harness.letters(limit=2**80) == []
    await goes_on(harness)


@pytest.mark.promise(10)
async def test_names_at_their_longest_go_all_the_way(harness: Harness) -> None:
    queue, group, dead = LONGEST_NAME, "g" * 255, "d" * 255
    await harness.declare(group, queue=dead)
    await harness.declare(group, queue=queue, dead_letter_queue=dead)
    longest = MessageId("i" * 255)
    await harness.publish(longest, longest, queue=queue, key="k" * MAX_ORDERING_KEY_BYTES)
    delivery = await harness.pull_one(queue=queue, group=group, lease=LONG, worker="w" * 255)
    assert harness.broker.extend_now([delivery.ack_id], LONG) == []
    await harness.give_up(delivery)
    await harness.broker.maintain()
    assert await harness.ids(queue=dead, group=group) == [longest]
    position = Position((await harness.rows(queue))[0]["epoch"], 1)
    await harness.broker.journal.commit("r" * 255, shard_name(queue), position)
    await goes_on(harness, queue=queue, group=group)
    await harness.broker.remove(queue)
    await harness.broker.remove(dead)


@pytest.mark.promise(10)
async def test_one_id_any_number_of_times_in_a_call_is_one_message(harness: Harness) -> None:
    await harness.declare()
    receipts = await harness.publish(*["same"] * 1_000)
    assert [receipt.fresh for receipt in receipts] == [True] + [False] * 999
    assert await harness.ids() == ["same"]
    await harness.declare(queue="again", dedup_window=timedelta(0))
    assert all(receipt.fresh for receipt in await harness.publish(*["same"] * 300, queue="again"))
    assert len(await harness.pull(1_000, queue="again", lease=LONG)) == 300
    await goes_on(harness)


ZERO: Final = timedelta(0)
ZERO_WINDOWS: Final[dict[str, dict[str, Any]]] = {
    "dedup window": {"dedup_window": ZERO},
    "journal": {"journal_keep": ZERO},
    "ttl": {"ttl": ZERO},
    "all": {"dedup_window": ZERO, "journal_keep": ZERO, "ttl": ZERO},
}


@pytest.mark.parametrize("case", ZERO_WINDOWS)
async def test_a_window_of_zero_is_refused_or_stops_nothing(harness: Harness, case: str) -> None:
    group = GroupSpec(name=G, backoff=Backoff(minimum=ZERO, maximum=ZERO))
    if "ttl" in ZERO_WINDOWS[case]:
        with pytest.raises(InvalidSetting):
            await harness.declare(group, **ZERO_WINDOWS[case])
        assert await harness.broker.stats() == []
    windows: dict[str, Any] = {name: ZERO for name in ZERO_WINDOWS[case] if name != "ttl"}
    await harness.declare(group, **windows)
    await harness.publish("a", "a", "b")
    await harness.pull(1)
    await harness.let_pass(LEASE + MOMENT)
    await harness.broker.purge(Q)
    await harness.publish("last")
    assert await harness.ids() == ["last"]
    await harness.broker.maintain()
    assert (await harness.stats()).depth == 0


@pytest.mark.promise(1)
@pytest.mark.parametrize("groups", [1, 127, 128, 1_000])
async def test_a_queue_of_any_number_of_groups_gives_each_its_copy_or_refuses_the_group(
    harness: Harness, groups: int
) -> None:
    names = [f"g{number}" for number in range(groups)]
    try:
        await harness.declare(*names)
    except InvalidSetting:
        assert groups >= FEWEST_GROUPS_REFUSED
        assert await harness.broker.stats() == []
        names = names[:2]
        await harness.declare(*names)
    receipts = await harness.publish("a", *(f"b{number}" for number in range(5)))
    assert all(receipt.fresh for receipt in receipts)
    for group in {names[0], names[-1]}:
        assert ids_of(await harness.pull(10, group=group, lease=LONG)) == ["a", *(f"b{number}" for number in range(5))]
    await goes_on(harness, group=names[-1])
