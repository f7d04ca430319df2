"""Handlers whose parameter is the type of a payload: msgspec, dataclasses and pydantic alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.testing import in_memory, run_until_empty


class StructLine(msgspec.Struct):
    amount: int


class StructOrder(msgspec.Struct):
    id: int
    lines: list[StructLine]


@dataclass
class PlainLine:
    amount: int


@dataclass
class PlainOrder:
    id: int
    lines: list[PlainLine]


class ModelLine(pydantic.BaseModel):
    amount: int


class ModelOrder(pydantic.BaseModel):
    id: int
    lines: list[ModelLine]


GOOD = {"id": 7, "lines": [{"amount": 1}, {"amount": 2}]}
BAD = {"id": 8, "lines": [{"amount": 1}, {"amount": "two"}]}
ORDERS = [StructOrder, PlainOrder, ModelOrder]


def handler_for(order: Any, handled: list[Any], form: str) -> Callable[..., Any]:
    """Return a handler of one order, or of a list of them."""
    if form == "async":

        async def take(one: order) -> None:
            handled.append(one)

        return take
    if form == "plain":

        def take_in_a_thread(one: order) -> None:
            handled.append(one)

        return take_in_a_thread

    async def take_many(many: list[order]) -> None:
        handled.extend(many)

    return take_many


@pytest.mark.parametrize("form", ["async", "plain", "batch"])
@pytest.mark.parametrize("order", ORDERS)
async def test_a_payload_is_converted_and_what_does_not_fit_is_given_up_with_its_path(order: Any, form: str) -> None:
    mq = in_memory()
    handled: list[Any] = []
    take = handler_for(order, handled, form)
    take.__annotations__ = {"many" if form == "batch" else "one": list[order] if form == "batch" else order}
    mq.consumer("orders", batch=3 if form == "batch" else None)(take)
    async with mq:
        await mq.enqueue_many([Message(queue="orders", payload=one) for one in (GOOD, BAD, GOOD)])
        ran = await run_until_empty(mq)
        (letter,) = await mq.broker.dead_letters.page(QueueName("orders"))
    assert [type(one) for one in handled] == [order, order]
    assert handled[0].lines[1].amount == 2
    assert (letter.kind, letter.errors[-1].type) == (FailureKind.PERMANENT, ErrorType.VALIDATION)
    assert "payload.lines[1].amount does not fit" in letter.errors[-1].message
    assert (ran.handled, len(letter.errors)) == (3, 1), "not tried again"


@pytest.mark.parametrize("order", ORDERS)
async def test_a_schema_checks_the_payloads_of_its_type_where_they_are_published(order: Any) -> None:
    mq = in_memory()
    mq.schemas.register("order", order)
    async with mq:
        await mq.declare("orders")
        await mq.enqueue(Message(queue="orders", type="order", payload=GOOD))
        with pytest.raises(Exception, match=r"payload\.lines\[1\]\.amount does not fit"):
            await mq.enqueue(Message(queue="orders", type="order", payload=BAD))


async def test_a_type_that_is_local_to_a_function_is_found() -> None:
    class Local(msgspec.Struct):
        id: int

    mq = in_memory()
    handled: list[Local] = []

    @mq.consumer("orders")
    async def take(order: Local) -> None:
        handled.append(order)

    async with mq:
        await mq.enqueue(Message(queue="orders", payload={"id": 7}))
        await run_until_empty(mq)
    assert handled == [Local(7)]


async def test_a_dictionary_is_the_payload_and_other_annotations_mean_the_message() -> None:
    mq = in_memory()
    given: dict[str, object] = {}

    @mq.consumer("orders", group="a")
    async def bare(message) -> None:  # type: ignore[no-untyped-def] # noqa: ANN001
        given["bare"] = message

    @mq.consumer("orders", group="b")
    async def anything(message: Any) -> None:
        given["any"] = message

    @mq.consumer("orders", group="c")
    async def dictionary(payload: dict[str, int]) -> None:
        given["dict"] = payload

    @mq.consumer("orders", group="d")
    async def optional(message: Message | None) -> None:
        given["optional"] = message

    async with mq:
        await mq.enqueue(Message(queue="orders", payload={"id": 7}))
        await run_until_empty(mq)
    assert isinstance(given["bare"], Message)
    assert isinstance(given["any"], Message)
    assert isinstance(given["optional"], Message)
    assert given["dict"] == {"id": 7}


async def test_a_plain_function_that_returns_a_coroutine_has_it_awaited() -> None:
    mq = in_memory()
    handled: list[object] = []

    async def charge(message: Message) -> None:
        handled.append(message.payload)

    mq.consumer("orders")(lambda message: charge(message))  # noqa: PLW0108 - no coroutine function
    async with mq:
        await mq.enqueue(Message(queue="orders", payload=7))
        await run_until_empty(mq)
    assert handled == [7]
