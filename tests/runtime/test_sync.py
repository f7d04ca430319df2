"""mq.sync: all an application holds, from code without an event loop, from threads beside one, and after a fork."""

from __future__ import annotations

import asyncio
import inspect
import os
import secrets
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from godwit import LetterFilter, Message, MessageQueueManager
from godwit.core.errors import BrokerClosed, NotOpen
from godwit.testing import in_memory

TWINS = ["", "dead_letters", "control", "scheduler", "monitor"]
BY_HAND = {"close", "run"}
"""The bridge closes itself; what runs without end has no synchronous form."""


@pytest.mark.parametrize("name", TWINS)
def test_whatever_is_asynchronous_has_a_synchronous_form(name: str) -> None:
    mq = in_memory()
    there = getattr(mq, name) if name else mq
    forms = getattr(mq.sync, name) if name else mq.sync
    members = inspect.getmembers_static(type(there))
    asynchronous = {
        word
        for word, member in members
        if not word.startswith("_") and (inspect.iscoroutinefunction(member) or inspect.isasyncgenfunction(member))
    }
    assert asynchronous - BY_HAND <= vars(forms).keys()
    for word in asynchronous - BY_HAND:
        form, original = getattr(forms, word), getattr(there, word)
        assert inspect.signature(form) == inspect.signature(original)
        assert form.__doc__ == original.__doc__


def test_what_hangs_on_the_manager_works_without_a_loop(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/shop.db")
    try:
        mq.sync.run(mq.store.migrations.upgrade())  # type: ignore[union-attr]
        mq.sync.declare("orders", "billing")
        mq.sync.enqueue(Message(queue="orders", payload=7))
        (delivery,) = mq.sync.dequeue("orders", "billing")
        mq.sync.reject_message(delivery, "no", requeue=False)
        (letter,) = list(mq.sync.dead_letters.letters(LetterFilter(name="orders")))
        assert mq.sync.dead_letters.count(LetterFilter(name="orders")) == 1
        assert letter.envelope.id == delivery.envelope.id
        mq.sync.control.pause("orders", reason="stocktaking")
        assert mq.sync.control.holds().paused("orders") is not None
        schedule = mq.sync.scheduler.add(Message(queue="orders"), cron="0 9 * * *")
        assert mq.sync.scheduler.get(schedule.id) == schedule
        with mq.sync.once("charge 7") as first:
            assert first
            first.result = "paid"
        with mq.sync.once("charge 7") as again:
            assert not again
            assert again.result == "paid"
        with pytest.raises(ZeroDivisionError), mq.sync.once("charge 8"):
            raise ZeroDivisionError
        with mq.sync.once("charge 8") as free:
            assert free
    finally:
        mq.sync.close()


async def test_a_thread_beside_a_running_loop_uses_the_manager_that_is_open_there() -> None:
    mq = in_memory()
    async with mq:
        await mq.declare("orders")
        name = await asyncio.to_thread(mq.sync.enqueue, Message(queue="orders"))
        (delivery,) = await mq.dequeue("orders")
        assert delivery.envelope.id == name
        assert "godwit sync" not in {thread.name for thread in threading.enumerate()}


async def test_a_plain_handler_publishes_with_mq_sync() -> None:
    mq = in_memory()

    @mq.consumer("orders")
    def charge(message: Message) -> None:
        mq.sync.enqueue(Message(queue="receipts", payload=message.payload))

    async with mq:
        await mq.declare("receipts")
        await mq.enqueue(Message(queue="orders", payload=7))
        worker = mq.worker()
        running = asyncio.create_task(worker.run())
        (receipt,) = await mq.dequeue("receipts", wait=timedelta(seconds=30))
        worker.stop()
        await running
    assert receipt.open().payload == 7


async def test_a_manager_is_open_in_one_loop_only() -> None:
    mq = in_memory()

    async def again() -> None:
        async with mq:
            pass

    async with mq:
        with pytest.raises(NotOpen, match="already open in another event loop"):
            await asyncio.to_thread(asyncio.run, again())


@pytest.fixture(params=["sqlite", "redis", pytest.param("rabbitmq", marks=pytest.mark.xdist_group("rabbitmq"))])
def backend_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Give the URL of a broker that processes share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/shop.db"
    if request.param == "redis":
        from tests.servers.redis import fresh

        return fresh("redis").url
    from tests.servers.rabbitmq import the_node

    return f"{the_node().url}?namespace=t{secrets.token_hex(4)}.&ledger={tmp_path}/ledger.db"


def at_exit(url: str) -> str:
    return f"""
from godwit import LetterFilter, Message, MessageQueueManager
mq = MessageQueueManager.from_url({url!r})
mq.sync.declare("exits")
print(mq.sync.enqueue(Message(queue="exits")))
"""


def forked(url: str) -> str:
    return f"""
import os, sys
from godwit import LetterFilter, Message, MessageQueueManager
mq = MessageQueueManager.from_url({url!r})
children = []
for _ in range(2):
    child = os.fork()
    if child == 0:
        mq.sync.declare("exits")
        print(mq.sync.enqueue(Message(queue="exits")), flush=True)
        sys.exit(0)
    children.append(child)
for child in children:
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print(mq.sync.enqueue(Message(queue="exits")))
"""


@pytest.mark.parametrize(("program", "published"), [(at_exit, 1), (forked, 3)])
def test_a_program_ends_without_a_word(backend_url: str, program: Any, published: int) -> None:
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program(backend_url)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.stderr == ""
    assert ended.returncode == 0
    assert len(set(ended.stdout.split())) == published


def test_a_child_of_the_process_that_opened_it_is_refused(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/shop.db")
    try:
        mq.sync.declare("orders")
        child = os.fork()
        if child == 0:
            try:
                mq.sync.enqueue(Message(queue="orders"))
            except NotOpen as error:
                os._exit(42 if "before this process was forked" in str(error) else 1)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 42
        mq.sync.enqueue(Message(queue="orders"))
    finally:
        mq.sync.close()
    with pytest.raises(BrokerClosed):
        mq.sync.enqueue(Message(queue="orders"))


def test_schedulers_made_before_a_fork_claim_apart(tmp_path: Path) -> None:
    mq = MessageQueueManager.from_url(f"sqlite:///{tmp_path}/shop.db")
    owners = {mq.scheduler.health.owner}
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            mq.sync.declare("orders")
            os.write(writer, f"{mq.scheduler.health.owner} {mq.scheduler._ticker.owner}".encode())
            os._exit(0)
        os.close(writer)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        first, second = os.read(reader, 1_000).decode().split()
        os.close(reader)
        assert first == second
        owners.add(first)
    assert len(owners) == 3
