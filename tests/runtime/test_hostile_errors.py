"""Errors inside error handling: whatever raises, in whatever way, each message is settled and the others go on."""

from __future__ import annotations

import asyncio
import io
import logging
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from godwit import BatchFailed, MessageQueueManager, Permanent, RateLimited, Retry
from godwit.brokers.memory import MemoryBroker
from godwit.core.failures.failure import Away, FailureKind
from godwit.core.failures.judgement import Verdict
from godwit.core.messages.message import Message
from godwit.core.settings import MonitoringSettings, Settings
from godwit.telemetry.alerts import Alert, AlertName
from godwit.telemetry.sinks import log_sink, tell
from tests.hostile import HOSTILE_ERRORS, OddError, UnshowableError
from tests.runtime.memory_workers import AT_ONCE, Q, at_work, empty, publish
from tests.waiting import eventually

WITHIN = timedelta(seconds=20)
Raising = Callable[[Any], Any]


class HostileRetry(Retry, UnshowableError):
    """A postponement that cannot be shown."""


class HostileLimit(RateLimited, UnshowableError):
    """A rate limit that cannot be shown."""


class HostilePermanent(Permanent, UnshowableError):
    """A permanent failure that cannot be shown."""


class HostileBatch(BatchFailed, UnshowableError):
    """A batch's failure that cannot be shown."""


class HostileCause(Exception):
    """An error whose cause, response and notes are hostile."""

    status_code = property(lambda _: (_ for _ in ()).throw(OddError))
    response = UnshowableError()

    def __init__(self) -> None:
        self.__cause__ = UnshowableError()
        self.__notes__ = [UnshowableError(), 7]  # type: ignore[list-item]


class Endless(Exception):
    """An error that is its own cause, and has an endless text."""

    def __init__(self) -> None:
        self.__cause__ = self

    def __str__(self) -> str:
        return str(self)


class HostileHeaders(Exception):
    """An error of a client library whose headers raise."""

    status_code = 429

    @property
    def headers(self) -> Any:
        """Raise."""
        raise UnshowableError


def raised() -> Iterator[tuple[str, Callable[[], BaseException]]]:
    """Give hostile errors by name."""
    for kind in (*HOSTILE_ERRORS, HostilePermanent, HostileCause, Endless, HostileHeaders):
        yield kind.__name__, kind
    yield "a postponement", lambda: HostileRetry("x", after=0)
    yield "a postponement before now", lambda: HostileRetry("x", after=-5)
    yield "a rate limit", lambda: HostileLimit("x", after=0)
    yield "a batch that failed with no dict", lambda: HostileBatch([1])  # type: ignore[arg-type]
    yield "a batch that failed with no errors", lambda: HostileBatch({0: "text", 1: None, "a": 5})  # type: ignore[dict-item]
    yield "a group", lambda: BaseExceptionGroup("both", [OddError(), UnshowableError()])
    yield "no answer", asyncio.CancelledError
    yield "the end of the process", lambda: SystemExit(3)
    yield "the end of an iteration", StopIteration


RAISED = dict(raised())


@pytest.mark.parametrize("form", ["coroutine", "coroutine that waits", "plain", "batch", "plain batch"])
@pytest.mark.parametrize("name", RAISED)
async def test_whatever_a_handler_raises_its_message_is_settled(name: str, form: str) -> None:
    tries, seen = 0, list[str]()

    def handle(payload: str) -> None:
        nonlocal tries
        if payload == "bad":
            tries += 1
            if tries < 4:  # a postponement would go on for long
                error = RAISED[name]()
                raise error
        seen.append(payload)

    async def coroutine(message: Message) -> None:
        if form == "coroutine that waits":
            await asyncio.sleep(0)
        handle(message.payload)

    async def batch(messages: list[Message]) -> None:
        for one in messages:
            handle(one.payload)

    def plain(message: Message) -> None:
        handle(message.payload)

    def plain_batch(messages: list[Message]) -> None:
        for one in messages:
            handle(one.payload)

    handlers: dict[str, Any] = {"plain": plain, "batch": batch, "plain batch": plain_batch}
    options: dict[str, Any] = {"retry_policy": AT_ONCE, "lease": timedelta(minutes=10)}
    if "batch" in form:
        options |= {"batch": 1}
    async with MemoryBroker() as broker, at_work(broker, handlers.get(form, coroutine), **options) as worker:
        await publish(broker, "bad", "good")
        await eventually(lambda: "good" in seen, within=WITHIN)
        await eventually(lambda: empty(broker), within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)
        assert worker.watchdog.restarts == 0


VERDICTS: dict[str, Any] = {
    "text": "retry",
    "a number": 7,
    "a wait before now": Verdict(kind=FailureKind.TRANSIENT, retry_after=timedelta(seconds=-5)),
    "a wait without end": Verdict(kind=FailureKind.TRANSIENT, retry_after=timedelta.max, postpone=True),
    "a wait of no length": Verdict(kind=FailureKind.TRANSIENT, retry_after="soon"),  # type: ignore[arg-type]
    "a wait in seconds": Verdict(kind=FailureKind.TRANSIENT, retry_after=0.01),  # type: ignore[arg-type]
    "no kind": Verdict(kind=None),  # type: ignore[arg-type]
    "a kind of its own": Verdict(kind="odd"),  # type: ignore[arg-type]
    "a type of its own": Verdict(kind=FailureKind.TRANSIENT, type="odd"),  # type: ignore[arg-type]
    "an absence of its own": Verdict(kind=FailureKind.TRANSIENT, away="odd"),  # type: ignore[arg-type]
    "an absence": Verdict(kind=FailureKind.TRANSIENT, away=Away.NETWORK),
}


@pytest.mark.parametrize("name", VERDICTS)
async def test_whatever_a_classify_hook_returns_the_message_is_settled(name: str) -> None:
    seen: list[str] = []

    async def handler(message: Message) -> None:
        if message.payload == "bad":
            raise KeyError("bad")
        seen.append(message.payload)

    async with (
        MemoryBroker() as broker,
        at_work(
            broker, handler, retry_policy=AT_ONCE, classify=lambda _: VERDICTS[name], lease=timedelta(minutes=10)
        ) as worker,
    ):
        await publish(broker, "bad", "good")
        await eventually(lambda: seen == ["good"], within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)
        (queue,) = await broker.stats()
        assert queue.groups[0].leased == 0


class Hostile:
    """A value of an application whose every use raises."""

    def __getattribute__(self, name: str) -> Any:
        raise OddError(name)


RESULTS: dict[str, Any] = {"odd": Hostile(), "error": UnshowableError(), "key": {Hostile(): 1}, "text": "\ud800"}


@pytest.mark.parametrize("form", ["coroutine", "coroutine that waits", "plain", "batch"])
@pytest.mark.parametrize("name", RESULTS)
async def test_a_result_that_cannot_be_kept_leaves_its_message_done(form: str, name: str) -> None:
    result = RESULTS[name]

    async def coroutine(_: Any) -> object:
        if form == "coroutine that waits":
            await asyncio.sleep(0)
        return result

    def plain(_: Message) -> object:
        return result

    options: dict[str, Any] = {"batch": 2, "batch_timeout": timedelta(seconds=0.05)} if form == "batch" else {}
    handler = plain if form == "plain" else coroutine
    async with MemoryBroker() as broker, at_work(broker, handler, lease=timedelta(minutes=10), **options) as worker:
        await publish(broker, "a", "b")
        await eventually(lambda: empty(broker), within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)
        assert (await broker.stats())[0].groups[0].dead == 0


@pytest.mark.parametrize("kind", [*HOSTILE_ERRORS, KeyError])
@pytest.mark.parametrize("form", ["coroutine", "plain", "batch"])
@pytest.mark.parametrize("place", ["filter", "check"])
async def test_a_filter_or_check_that_raises_fails_its_message(
    place: str, form: str, kind: type[BaseException]
) -> None:
    seen: list[str] = []

    def raising(message: Message | str) -> bool:
        if (message.payload if isinstance(message, Message) else message) == "bad":
            raise kind
        return True

    async def coroutine(message: Any) -> None:
        seen.extend(one.payload for one in (message if form == "batch" else [message]))

    def plain(message: Message) -> None:
        seen.append(message.payload)

    options: dict[str, Any] = {"batch": 2, "batch_timeout": timedelta(seconds=0.05)} if form == "batch" else {}
    options |= {"filters": {Q: raising}} if place == "filter" else {"checks": {"message": raising}}
    handler = plain if form == "plain" else coroutine
    async with (
        MemoryBroker() as broker,
        at_work(broker, handler, retry_policy=AT_ONCE, lease=timedelta(minutes=10), **options) as worker,
    ):
        await publish(broker, "bad", "good")
        await eventually(lambda: empty(broker), within=WITHIN)
        await eventually(worker.is_idle, within=WITHIN)
        assert seen == ["good"]
        assert len(await broker.dead_letters.page(Q)) == 1


class HostileLogHandler(logging.Handler):
    """A handler that cannot write anything."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise."""
        raise OddError(record.getMessage())


class HostileFilter(logging.Filter):
    """A filter that cannot read any record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Raise."""
        raise UnshowableError(record.getMessage())


@pytest.mark.parametrize("hostile", [HostileLogHandler(), HostileFilter()], ids=["handler", "filter"])
async def test_a_log_that_cannot_be_written_settles_every_message(
    hostile: HostileLogHandler | HostileFilter, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = hostile if isinstance(hostile, logging.Handler) else logging.StreamHandler(io.StringIO())
    if isinstance(hostile, logging.Filter):
        handler.addFilter(hostile)
    root = logging.getLogger("godwit")
    root.addHandler(handler)
    try:

        async def handle(message: Message) -> None:
            if message.payload == "bad":
                raise UnshowableError

        async with MemoryBroker() as broker, at_work(broker, handle, retry_policy=AT_ONCE) as worker:
            await publish(broker, "bad", "good", "bad", "good")
            await eventually(lambda: empty(broker), within=WITHIN)
            await eventually(worker.is_idle, within=WITHIN)
            assert len(await broker.dead_letters.page(Q)) == 2
            assert worker.watchdog.restarts == 0
    finally:
        root.removeHandler(handler)
    assert "the log could not be written" in capfd.readouterr().err


class HostileSink:
    """An alert sink whose call, and whose every attribute, raises."""

    def __init__(self, kind: type[BaseException]) -> None:
        object.__setattr__(self, "kind", kind)

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return HostileSink
        raise OddError(name)

    def __call__(self, _: Alert) -> None:
        raise object.__getattribute__(self, "kind")


@pytest.mark.parametrize("kind", [*HOSTILE_ERRORS, asyncio.CancelledError])
async def test_a_hostile_sink_silences_no_other(kind: type[BaseException]) -> None:
    told: list[Alert] = []

    async def raises(_: Alert) -> None:
        raise kind

    def raises_in_thread(_: Alert) -> None:
        raise kind

    alert = Alert(
        name=next(iter(AlertName)), state="firing", subject="q", value=1.0, threshold=0.0, at=datetime.now(UTC)
    )
    sinks: list[Any] = [raises, raises_in_thread, HostileSink(kind), log_sink, told.append]
    await tell(sinks, [alert, alert])
    assert told == [alert, alert]


@pytest.mark.parametrize("kind", HOSTILE_ERRORS)
async def test_hostile_health_checks_and_hooks_leave_pages_and_messages_alone(kind: type[BaseException]) -> None:
    mq = MessageQueueManager(MemoryBroker(), settings=Settings(monitoring=MonitoringSettings(http_port=0)))

    def raises(*_: object) -> Any:
        raise kind

    seen: list[str] = []

    @mq.consumer(Q, health_check=raises, retry_policy=AT_ONCE)
    async def handle(message: Message) -> None:
        seen.append(message.payload)

    async def check() -> Any:
        raise kind

    async def gives_up() -> Any:
        raise asyncio.CancelledError

    mq.monitor.register_check("odd", check, own=True)
    mq.monitor.register_check("cancelled", gives_up, own=True)
    mq.on_alert(raises)
    async with mq:
        worker = mq.worker()
        work = asyncio.create_task(worker.run())
        try:
            await mq.enqueue(Message(queue=Q, payload="good"))
            await eventually(lambda: seen == ["good"], within=WITHIN)
            status = await mq.monitor.get_health_status()
            hostile = [one for one in status.checks if one.name in {"odd", "cancelled"}]
            assert [(one.healthy, bool(one.detail)) for one in hostile] == [(False, True)] * 2
            assert "godwit" in await mq.monitor.render_metrics()
        finally:
            worker.stop()
            await work
