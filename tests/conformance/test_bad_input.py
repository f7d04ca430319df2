"""Bad input: a typed error that says what, why and what to do, and nothing partly done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from godwit.brokers.contract import MAX_LEASE, Ack, GiveUp
from godwit.core.errors import (
    AlreadyExistsError,
    BrokerClosed,
    GodwitError,
    GroupNotFound,
    InvalidMessage,
    InvalidName,
    InvalidSetting,
    QueueNotFound,
)
from godwit.core.failures.failure import FailureKind
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message, Scheduling
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import LEASE, LONG, G, Harness, Q

NOWHERE, NOBODY = QueueName("nowhere"), GroupName("nobody")
Call = Callable[[Harness], Awaitable[object]]


async def refused(harness: Harness, error: type[GodwitError], call: Awaitable[object]) -> None:
    """Show that a call is refused with fact and remedy, and that it changed nothing."""
    before = await harness.broker.stats(), await harness.events()
    with pytest.raises(error) as caught:
        await call
    assert caught.value.fact
    assert caught.value.remedy
    assert (await harness.broker.stats(), await harness.events()) == before


async def furnished(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await harness.publish("a", "b")
    await harness.pull_one(lease=LONG)


UNKNOWN_QUEUE: dict[str, Call] = {
    "pull": lambda h: h.pull(queue=NOWHERE),
    "publish": lambda h: h.publish("x", queue=NOWHERE),
    "purge": lambda h: h.broker.purge(NOWHERE),
    "remove": lambda h: h.broker.remove(NOWHERE),
    "cancel": lambda h: h.broker.cancel(NOWHERE, MessageId("a")),
    "snapshot": lambda h: h.broker.journal.snapshot(NOWHERE),
    "dead letters": lambda h: h.letters(NOWHERE),
}
UNKNOWN_GROUP: dict[str, Call] = {
    "pull": lambda h: h.pull(group=NOBODY),
    "publish": lambda h: h.publish("x", group=NOBODY),
    "purge": lambda h: h.broker.purge(Q, NOBODY),
    "remove": lambda h: h.broker.remove(Q, NOBODY),
}
IMPOSSIBLE: dict[str, Call] = {
    "limit of zero": lambda h: h.pull(0),
    "negative limit": lambda h: h.pull(-1),
    "lease of zero": lambda h: h.pull(lease=timedelta(0)),
    "negative lease": lambda h: h.pull(lease=-LEASE),
    "lease below a millisecond": lambda h: h.pull(lease=timedelta(microseconds=1)),
    "lease above the longest": lambda h: h.pull(lease=MAX_LEASE + timedelta(milliseconds=1)),
    "negative wait": lambda h: h.pull(wait=-LEASE),
    "bytes of zero": lambda h: h.pull(max_bytes=0),
    "negative bytes": lambda h: h.pull(max_bytes=-1),
    "page limit of zero": lambda h: h.letters(limit=0),
    "journal limit of zero": lambda h: h.broker.journal.read(f"{Q}#0", limit=0),
}


@pytest.mark.parametrize("call", UNKNOWN_QUEUE.values(), ids=UNKNOWN_QUEUE)
async def test_an_unknown_queue_is_refused_by_name(harness: Harness, call: Call) -> None:
    await furnished(harness)
    await refused(harness, QueueNotFound, call(harness))


async def test_the_error_of_an_unknown_queue_names_the_known_ones(harness: Harness) -> None:
    await furnished(harness)
    with pytest.raises(QueueNotFound, match=r"'nowhere' is not declared \(declared: 'orders'\)"):
        await harness.pull(queue=NOWHERE)


@pytest.mark.parametrize("call", UNKNOWN_GROUP.values(), ids=UNKNOWN_GROUP)
async def test_an_unknown_group_is_refused_by_name(harness: Harness, call: Call) -> None:
    await furnished(harness)
    await refused(harness, GroupNotFound, call(harness))


async def test_of_several_unknown_names_the_first_one_of_the_call_is_reported(harness: Harness) -> None:
    await furnished(harness)
    for n in range(20):
        batch = [harness.envelope(f"x{m}", group=f"nobody{n}-{m}") for m in range(6)]
        with pytest.raises(GroupNotFound) as caught:
            await harness.broker.publish(batch)
        assert caught.value.group == f"nobody{n}-0"


@pytest.mark.parametrize("call", IMPOSSIBLE.values(), ids=IMPOSSIBLE)
async def test_impossible_numbers_are_refused(harness: Harness, call: Call) -> None:
    await furnished(harness)
    await refused(harness, InvalidSetting, call(harness))


async def test_the_longest_lease_is_accepted(harness: Harness) -> None:
    await furnished(harness)
    assert (await harness.pull(lease=MAX_LEASE))[0].message_id == "b"


@pytest.mark.parametrize("lease", [-LEASE, MAX_LEASE + timedelta(milliseconds=1)], ids=["negative", "too long"])
async def test_an_impossible_extension_is_refused(harness: Harness, lease: timedelta) -> None:
    await furnished(harness)
    delivery = await harness.pull_one(lease=LONG)
    await refused(harness, InvalidSetting, harness.broker.extend([delivery.ack_id], lease))


@pytest.mark.parametrize(
    "name", ["", "x" * 256, " orders", "or ders", "ordérs", "{orders}", "-orders", "a\nb", "a\x00"]
)
async def test_names_that_cannot_be_are_refused_when_declared(harness: Harness, name: str) -> None:
    with pytest.raises(InvalidName):
        await harness.broker.declare(QueueSpec(name=QueueName(name)), [])
    with pytest.raises(InvalidName):
        await harness.broker.declare(QueueSpec(name=Q), [GroupSpec(name=GroupName(name))])
    assert await harness.broker.stats() == []


async def test_names_of_full_length_and_all_allowed_characters_work(harness: Harness) -> None:
    name = "aZ9._:@/+-" + "x" * 245
    await harness.declare(name, queue=name)
    await harness.publish("a", queue=name)
    assert await harness.ids(queue=name, group=name) == ["a"]


async def test_the_same_group_twice_in_one_declaration_is_refused(harness: Harness) -> None:
    with pytest.raises(InvalidSetting, match="each group once"):
        await harness.declare("mail", "mail")
    assert await harness.broker.stats() == []


async def test_a_batch_with_one_bad_message_publishes_none(harness: Harness) -> None:
    await furnished(harness)
    good = Message(id=MessageId("good"), queue=Q)
    before = await harness.broker.stats(), await harness.events()
    for bad in bad_messages().values():
        with pytest.raises((InvalidMessage, InvalidName)):
            await harness.broker.publish(seal_all([good, bad, good]))
    assert (await harness.broker.stats(), await harness.events()) == before


def bad_messages() -> dict[str, Message]:
    loose: Any = object()
    number: Any = 1
    naive = datetime(2026, 1, 1, 12)
    return {
        "no queue": Message(),
        "payload of no JSON type": Message(queue=Q, payload=loose),
        "not a number": Message(queue=Q, payload=[float("nan")]),
        "key that is no string": Message(queue=Q, payload={1: 2}),
        "lone surrogate": Message(queue=Q, payload="\ud800"),
        "attribute that is no string": Message(queue=Q, attributes={"a": number}),
        "reserved attribute": Message(queue=Q, attributes={"googclient_x": "1"}),
        "naive due time": Message(queue=Q, scheduling=Scheduling(deliver_at=naive)),
        "naive expiry": Message(queue=Q, expires_at=naive),
        "naive creation": Message(queue=Q, created_at=naive),
        "priority over 100": Message(queue=Q, priority=101),
        "empty id": Message(queue=Q, id=MessageId("")),
    }


async def test_a_setting_that_decides_where_messages_wait_cannot_change_under_them(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await refused(harness, AlreadyExistsError, harness.declare(lanes=1))
    await refused(harness, AlreadyExistsError, harness.declare(GroupSpec(name=G, message_ordering=True)))
    assert await harness.ids() == ["a"]


async def test_a_refused_declaration_creates_no_group_either(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    changed = GroupSpec(name=G, message_ordering=True)
    await refused(harness, AlreadyExistsError, harness.declare("new", changed))


async def test_a_closed_broker_says_so(harness: Harness) -> None:
    await harness.declare()
    await harness.broker.close()
    for call in (harness.publish("a"), harness.pull(), harness.broker.stats(), harness.broker.maintain()):
        with pytest.raises(BrokerClosed):
            await call
    await harness.broker.close()
    await harness.start()
    assert (await harness.stats()).depth == 0


async def test_giving_up_with_an_unknown_ack_id_is_refused_by_value(harness: Harness) -> None:
    await furnished(harness)
    before = await harness.broker.stats()
    delivery = await harness.pull_one(lease=LONG)
    await harness.broker.settle([Ack(delivery.ack_id)])
    assert await harness.broker.settle([GiveUp(delivery.ack_id, FailureKind.PERMANENT)]) == [delivery.ack_id]
    assert (await harness.letters()) == []
    assert before
