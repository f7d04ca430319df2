"""Hostile values at the manager: a typed error and nothing changed, or it works; the next call works in any case."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta, timezone
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from godwit import Message, MessageQueueManager
from godwit.core.errors import GodwitError, InvalidSetting
from godwit.core.limits import EARLIEST_MS
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Kind, Routing, Scheduling
from tests.hostile import HOSTILE_ERRORS, OddError
from tests.hostile_messages import WRONG, zoned
from tests.waiting import soon

EAST, WEST = timezone(timedelta(hours=14)), timezone(timedelta(hours=-14))
LOOSE: Any = object()
NUMBERS: Final = count()


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[MessageQueueManager]:
    """Give a manager with a store, whose queue `orders` has no worker."""
    manager = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/orders.db")

    @manager.consumer("orders")
    async def charge(_: Message) -> None: ...

    async with manager:
        yield manager


async def seen(mq: MessageQueueManager) -> tuple[object, ...]:
    """Return what a refused call must leave as it was."""
    assert mq.store is not None
    waiting = await mq.scheduler.upcoming()
    return (await mq.broker.stats(), len(waiting), len(await mq.scheduler.list()))


async def goes_on(mq: MessageQueueManager) -> None:
    """Show that a fresh message still goes through, at once."""
    fresh = f"fresh-{next(NUMBERS)}"

    async def through() -> None:
        assert await mq.enqueue(Message(id=fresh, queue="orders")) == fresh
        assert await mq.enqueue_many([Message(queue="orders")])
        found = await mq.dequeue("orders", limit=1_000)
        assert fresh in {delivery.message_id for delivery in found}
        for delivery in found:
            await mq.acknowledge_message(delivery)

    await soon(through(), 1)


async def refused(mq: MessageQueueManager, call: Callable[[], Awaitable[object]]) -> None:
    """Show that a call is refused with a typed error and changes nothing, and that the next works."""
    before = await seen(mq)
    with pytest.raises(GodwitError) as caught:
        await call()
    assert str(caught.value)
    assert await seen(mq) == before
    await goes_on(mq)


@pytest.mark.parametrize("case", WRONG)
async def test_a_message_that_no_handler_could_read_is_refused(mq: MessageQueueManager, case: str) -> None:
    fields: dict[str, Any] = {"queue": "orders", **WRONG[case]}
    good = Message(queue="orders")
    await refused(mq, lambda: mq.enqueue(Message(**fields)))
    await refused(mq, lambda: mq.enqueue_many([good, Message(**fields), good]))
    later = datetime.now(UTC) + timedelta(hours=2)
    for options in ({"deliver_at": later}, {"cron": "0 9 * * *"}):
        with suppress(GodwitError):  # its own times are left out where others are given, also wrong ones
            await mq.schedule_message(Message(**fields), **options)
        await goes_on(mq)


ORDER: Final = Message(queue="orders", payload={"id": 7})
Call = Callable[[MessageQueueManager], Awaitable[object]]
CALLS: Final[dict[str, Call]] = {
    "nothing": lambda mq: mq.enqueue(LOOSE),
    "nothing in a batch": lambda mq: mq.enqueue_many([ORDER, LOOSE]),
    "due at a text": lambda mq: mq.enqueue(ORDER, scheduled_at=LOOSE),
    "due without a zone": lambda mq: mq.enqueue(ORDER, scheduled_at=datetime(2026, 1, 1, 12)),
    "due in a zone that raises": lambda mq: mq.enqueue(ORDER, scheduled_at=zoned(OSError())),
    "expires at a text": lambda mq: mq.enqueue(ORDER, expires_at=LOOSE),
    "due after its end": lambda mq: mq.enqueue(
        ORDER, scheduled_at=datetime.max.replace(tzinfo=UTC), expires_at=datetime.min.replace(tzinfo=EAST)
    ),
    "immediate and due": lambda mq: mq.enqueue(
        Message(queue="orders", kind=Kind.IMMEDIATE), scheduled_at=datetime.max.replace(tzinfo=WEST)
    ),
    "recurring": lambda mq: mq.enqueue(Message(queue="orders", kind=Kind.RECURRING)),
    "less than no replica": lambda mq: mq.enqueue(ORDER, min_replicas=-1),
    "half a replica": lambda mq: mq.enqueue(ORDER, min_replicas=LOOSE),
    "half a replica for all": lambda mq: mq.enqueue_many([ORDER], min_replicas=LOOSE),
    "a queue that is none": lambda mq: mq.dequeue("\ud800"),
    "a queue that nobody declared": lambda mq: mq.dequeue("x" * 100_000),
    "a group that is none": lambda mq: mq.dequeue("orders", "\ud800"),
    "no message": lambda mq: mq.dequeue("orders", limit=0),
    "too many": lambda mq: mq.dequeue("orders", limit=2**63),
    "half a message": lambda mq: mq.dequeue("orders", limit=LOOSE),
    "a lease before now": lambda mq: mq.dequeue("orders", lease=timedelta(seconds=-1)),
    "a lease without end": lambda mq: mq.dequeue("orders", lease=timedelta.max),
    "a lease of no length": lambda mq: mq.dequeue("orders", lease=LOOSE),
    "a wait before now": lambda mq: mq.dequeue("orders", wait=timedelta.min),
    "a wait of no length": lambda mq: mq.dequeue("orders", wait=LOOSE),
    "an acknowledgement of nothing": lambda mq: mq.acknowledge_message(LOOSE),
    "an acknowledgement of a list": lambda mq: mq.acknowledge_message([]),  # type: ignore[arg-type]
    "a rejection of nothing": lambda mq: mq.reject_message(LOOSE, "why"),
    "due in year 1": lambda mq: mq.schedule_message(ORDER, datetime.min.replace(tzinfo=EAST)),
    "due in 1970": lambda mq: mq.schedule_message(ORDER, datetime(1970, 1, 1, tzinfo=UTC)),
    "due in year 9999": lambda mq: mq.schedule_message(ORDER, datetime.max.replace(tzinfo=WEST)),
    "scheduled without a zone": lambda mq: mq.schedule_message(ORDER, datetime(2100, 1, 1, 12)),
    "scheduled in a zone that raises": lambda mq: mq.schedule_message(ORDER, zoned(ValueError())),
    "scheduled at a text": lambda mq: mq.schedule_message(ORDER, LOOSE),
    "scheduled never": lambda mq: mq.schedule_message(ORDER),
    "nothing scheduled": lambda mq: mq.schedule_message(LOOSE, datetime.now(UTC) + timedelta(hours=2)),
    "nothing recurring": lambda mq: mq.schedule_message(LOOSE, cron="0 9 * * *"),
    "no expression": lambda mq: mq.schedule_message(ORDER, cron="nonsense"),
    "an expression that is no text": lambda mq: mq.schedule_message(ORDER, cron=LOOSE),
    "an endless expression": lambda mq: mq.schedule_message(ORDER, cron="* " * 100_000),
    "a zone of no place": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", timezone="\0"),
    "a zone that is no text": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", timezone=LOOSE),
    "a zone outside": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", timezone="../../etc/passwd"),
    "a rule that ended": lambda mq: mq.schedule_message(
        ORDER, cron="0 9 * * *", ends_at=datetime.min.replace(tzinfo=EAST)
    ),
    "jitter without end": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", jitter=timedelta.max),
    "half an occurrence": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", max_occurrences=0.5),
    "no such misfire": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", misfire=LOOSE),
    "an id with a surrogate": lambda mq: mq.schedule_message(ORDER, cron="0 9 * * *", id="\ud800"),
    "a discard in no queue": lambda mq: mq.discard("\ud800", "x"),
}


@pytest.mark.parametrize("case", CALLS)
async def test_a_call_with_what_cannot_be_is_refused(mq: MessageQueueManager, case: str) -> None:
    await refused(mq, lambda: CALLS[case](mq))


@pytest.mark.parametrize(
    "instant",
    [datetime.min.replace(tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC), datetime.max.replace(tzinfo=WEST)],
    ids=str,
)
async def test_times_of_any_year_are_kept_or_expire_at_once(mq: MessageQueueManager, instant: datetime) -> None:
    await mq.enqueue(ORDER, expires_at=instant)
    await mq.enqueue(Message(queue="orders", created_at=instant, scheduling=Scheduling(deliver_at=instant)))
    await mq.enqueue_many([Message(queue="orders", created_at=instant)] * 3)
    await mq.broker.maintain()
    await goes_on(mq)
    assert await mq.status(ORDER.id) is not None


async def test_messages_alike_are_moved_inside_the_limits_each(mq: MessageQueueManager) -> None:
    first = Message(queue="orders")
    others = [Message(queue="orders", created_at=datetime.min.replace(tzinfo=UTC)) for _ in range(3)]
    await mq.enqueue_many([first, *others])
    await mq.broker.maintain()
    created = {letter.envelope.created_at_ms for letter in await mq.broker.dead_letters.page("orders")}
    assert created == {EARLIEST_MS}
    await goes_on(mq)


def interrupted() -> Iterator[Message]:
    """Give two messages, then raise."""
    yield Message(queue="orders")
    yield Message(queue="orders")
    raise LookupError("the application's own")


async def test_messages_that_cannot_all_be_made_are_not_published(mq: MessageQueueManager) -> None:
    before = await seen(mq)
    with pytest.raises(LookupError, match="the application's own"):
        await mq.enqueue_many(interrupted())
    assert await seen(mq) == before
    await goes_on(mq)


def _raising(error: type[BaseException]) -> Callable[[Message], Any]:
    def change(_: Message) -> Any:
        raise error("x")

    return change


TRANSFORMS: Final[dict[str, Callable[[Message], Any]]] = {
    **{f"raises {error.__name__}": _raising(error) for error in HOSTILE_ERRORS if error is not OddError},
    "gives nothing": lambda _: None,
    "gives itself": lambda _: TRANSFORMS,
    "gives another": lambda _: Message(queue="orders"),
    "gives another queue": lambda message: msgspec.structs.replace(message, queue="elsewhere"),
    "gives another route": lambda message: msgspec.structs.replace(message, routing=Routing(target_queue="elsewhere")),
    "gives no route": lambda message: msgspec.structs.replace(message, routing=None),
    "gives no id": lambda message: msgspec.structs.replace(message, id=LOOSE),
    "gives no metadata": lambda message: msgspec.structs.replace(message, metadata=None),
    "gives no payload": lambda message: msgspec.structs.replace(message, payload=LOOSE),
    "gives an odd time": lambda message: msgspec.structs.replace(message, created_at=zoned(ValueError())),
}


@pytest.mark.parametrize("case", TRANSFORMS)
async def test_a_transform_that_gives_nonsense_refuses_its_queue_only(mq: MessageQueueManager, case: str) -> None:
    await mq.broker.declare(msgspec.structs.replace((await _spec(mq)), name="changed"))
    mq.transform("changed", TRANSFORMS[case])
    await refused(mq, lambda: mq.enqueue(Message(queue="changed", payload=1)))
    await refused(mq, lambda: mq.enqueue_many([Message(queue="orders"), Message(queue="changed")]))


async def _spec(mq: MessageQueueManager) -> Any:
    return mq.settings.queue("orders").spec


class Picky(msgspec.Struct):
    """A payload whose class raises what it likes."""

    n: int

    def __post_init__(self) -> None:
        raise {1: KeyError, 2: RecursionError, 3: HOSTILE_ERRORS[0]}[self.n]("no")


@pytest.mark.parametrize("n", [1, 2, 3])
async def test_a_schema_that_raises_refuses_the_message(mq: MessageQueueManager, n: int) -> None:
    mq.schemas.register("picky", Picky)
    await refused(mq, lambda: mq.enqueue(Message(queue="orders", type="picky", payload={"n": n})))


@pytest.mark.parametrize("reason", ["\ud800", "a\0b", "x" * 1_000_000, "", LOOSE], ids=lambda reason: str(reason)[:5])
@pytest.mark.parametrize("requeue", [True, False])
async def test_a_rejection_for_any_reason_settles_the_message(
    mq: MessageQueueManager, reason: Any, requeue: bool
) -> None:
    await mq.enqueue(ORDER)
    (delivery,) = await mq.dequeue("orders")
    await mq.reject_message(delivery, reason, requeue=requeue)
    (group,) = (await mq.broker.stats())[0].groups
    assert (group.leased, group.delayed, group.dead) == (0, int(requeue), int(not requeue))
    await goes_on(mq)


async def test_a_message_that_nobody_can_read_is_rejected_as_its_group_says(mq: MessageQueueManager) -> None:
    body = b'{"payload":' + b"[" * 100_000
    await mq.broker.publish([msgspec.structs.replace(seal(ORDER), body=body, size=len(body))])
    (delivery,) = await mq.dequeue("orders")
    await mq.reject_message(delivery, "not readable")
    (group,) = (await mq.broker.stats())[0].groups
    assert (group.leased, group.delayed) == (0, 1)
    await goes_on(mq)


@pytest.mark.parametrize(
    "options", [{"concurrency": 2.5}, {"concurrency": True}, {"batch": -1}, {"batch": 0.5}], ids=str
)
async def test_impossible_numbers_of_a_consumer_are_refused(mq: MessageQueueManager, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        mq.consumer("orders", group="others", **options)(lambda _: None)
    mq.consumer("orders", group="others", concurrency=2**63, batch=2**63)(lambda _: None)
    await goes_on(mq)
