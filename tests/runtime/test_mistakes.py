"""The mistakes of a first hour: each is refused where it is made, with the sentence that mistakes.txt has for it."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from godwit import GodwitError, Message, MessageQueueManager, QueueConsumer, config
from godwit.core.errors import InvalidHandler
from godwit.testing import in_memory


def handle(message: Message) -> None: ...


def batch_of(messages: list[Message]) -> None: ...


def generator(message: Message) -> Iterator[int]:
    yield 1


async def stream(message: Message) -> AsyncIterator[int]:
    yield 1


def of_two(order: int, message: Message) -> None: ...


def of_none() -> None: ...


def odd(order: threading_lock) -> None: ...  # type: ignore[name-defined] # noqa: F821 # imported for the type checker alone


def unknown_type(order: GodwitError) -> None: ...


class Emails(QueueConsumer):
    queues = "emails"


class Unserved(QueueConsumer): ...


def from_url(url: str, **options: Any) -> MessageQueueManager:
    return MessageQueueManager.from_url(url, **options)


def registered(handler: Any, *queues: Any, **options: Any) -> None:
    in_memory().consumer(*(queues or ("orders",)), **options)(handler)


def twice(**second: Any) -> None:
    mq = in_memory()
    mq.consumer("orders", group="billing", types=["paid"])(handle)
    mq.consumer("orders", "refunds", group="billing", **second)(unlike)


def unlike(message: Message) -> None: ...


async def unopened() -> None:
    await in_memory().enqueue(Message(queue="orders"))


async def closed() -> None:
    async with (mq := in_memory()):
        pass
    await mq.enqueue(Message(queue="orders"))


async def sync_in_the_loop() -> None:
    async with (mq := in_memory()):
        mq.sync.enqueue(Message(queue="orders"))


async def worker_unopened() -> None:
    mq = in_memory()
    mq.consumer("orders")(handle)
    await mq.worker().run()


async def worker_without_consumers() -> None:
    async with (mq := in_memory()):
        await mq.worker().run()


async def published(message: Any, **declared: Any) -> None:
    async with (mq := in_memory()):
        await mq.declare("emails")
        await mq.enqueue(message)


async def pulled(group: str) -> None:
    async with (mq := in_memory()):
        await mq.declare("emails", "senders")
        await mq.dequeue("emails", group)


MISTAKES: dict[str, Callable[[], object]] = {
    "two slashes": lambda: from_url("sqlite://m2.db"),
    "a scheme that is mistyped": lambda: from_url("reddis://localhost"),
    "a scheme of stores": lambda: from_url("memory://", store="mysql://localhost"),
    "an option of SQLite": lambda: from_url("sqlite:///shop.db?durability=full"),
    "an option of Redis": lambda: from_url("redis://:secret@localhost?replica=disk"),
    "an option of RabbitMQ": lambda: from_url("amqp://guest:secret@localhost/?heartbeet=10"),
    "an option of memory": lambda: from_url("memory://?spil=x.db"),
    "a URL where a broker is wanted": lambda: MessageQueueManager("memory://"),  # type: ignore[arg-type]
    "a word of a manager": lambda: from_url("memory://", stores="sqlite:///x.db"),
    "no async with": unopened,
    "after async with": closed,
    "a worker without async with": worker_unopened,
    "a worker without consumers": worker_without_consumers,
    "mq.sync inside the loop": sync_in_the_loop,
    "a decorator without parentheses": lambda: in_memory().consumer(handle),  # type: ignore[arg-type]
    "a word of a consumer": lambda: registered(handle, retry=3),
    "a handler of nothing": lambda: registered(of_none),
    "a handler of two": lambda: registered(of_two),
    "a generator": lambda: registered(generator),
    "an asynchronous generator": lambda: registered(stream),
    "a handler that is none": lambda: registered("charge"),
    "a class as a handler": lambda: registered(Emails),
    "a list without batch": lambda: registered(batch_of),
    "batch without a list": lambda: registered(handle, batch=10),
    "a type that is not imported": lambda: registered(odd),
    "a type that no payload has": lambda: registered(unknown_type),
    "queues as a text": lambda: in_memory().register(Emails()),
    "no queues": lambda: in_memory().register(Unserved()),
    "a consumer's class": lambda: in_memory().register(Emails),  # type: ignore[arg-type]
    "types as a text": lambda: registered(handle, types="order.created"),
    "two handlers of a group": twice,
    "two handlers of a type": lambda: twice(types=["refunded", "paid"]),
    "no concurrency": lambda: registered(handle, concurrency=0),
    "a duration as a text": lambda: registered(handle, lease="15s"),
    "a queue that is mistyped": lambda: published(Message(queue="emial")),
    "a group that is mistyped": lambda: pulled("sender"),
    "a payload that is published bare": lambda: published({"id": 7}),
    "a number that is a word": lambda: config.load(environment={"MAX_RETRIES": "many"}),
}
SENTENCES = dict(re.findall(r"^(\S.*)\n {4}(.*)$", (Path(__file__).parent / "mistakes.txt").read_text(), re.MULTILINE))


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_mistake_is_refused_where_it_is_made(mistake: str) -> None:
    with pytest.raises(GodwitError) as caught:
        await _made(MISTAKES[mistake])
    assert re.sub(r"line \d+", "line N", str(caught.value)) == SENTENCES[mistake]


async def _made(mistake: Callable[[], object]) -> None:
    made = mistake()
    if inspect.isawaitable(made):
        async with asyncio.timeout(10):
            await made


def test_every_mistake_has_a_sentence() -> None:
    assert MISTAKES.keys() == SENTENCES.keys()


def test_a_refused_handler_is_named_with_its_line() -> None:
    with pytest.raises(InvalidHandler) as caught:
        registered(of_two)
    assert caught.value.where == f"{Path(__file__).name}, line {of_two.__code__.co_firstlineno}"


def test_a_store_may_be_given_by_its_url(tmp_path: Path) -> None:
    mq = from_url("memory://", store=f"sqlite:///{tmp_path}/store.db")
    assert mq.store is not None
    assert mq.store.url == f"sqlite:///{tmp_path}/store.db"


def test_attempts_may_be_unlimited() -> None:
    for environment in ({"MAX_RETRIES": "unlimited"}, {"QUEUE_MAX_RETRIES": "Unlimited"}):
        attempts = config.load(environment=environment).defaults.retry_policy.max_attempts
        assert attempts == 2**31 - 1


async def test_what_a_decorator_passes_on_is_judged_by_what_it_takes() -> None:
    def with_session(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def inner(*arguments: object) -> None:
            function(*arguments, "session")

        return inner

    @with_session
    def charge(message: Message, session: str) -> None: ...

    registered(charge)
