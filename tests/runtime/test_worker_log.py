"""What a worker logs: enough to know what it does, without a line for every message."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from godwit import Rate
from godwit.core.messages.message import Message
from godwit.core.names import GroupName, QueueName
from godwit.runtime.worker.heartbeat import ConsumerInstance, InstanceStatus
from godwit.runtime.worker.worker import Worker
from godwit.testing import InMemoryManager, in_memory, run_until_empty
from tests.logs import capture_logs
from tests.runtime.worker_processes import STARTED, SampleWorkers
from tests.waiting import eventually

Lines = list[dict[str, Any]]


@asynccontextmanager
async def at_work(mq: InMemoryManager) -> AsyncIterator[Worker]:
    worker = mq.worker(name="w1")
    running = asyncio.create_task(worker.run())
    yield worker
    worker.stop()
    await running


def events(lines: Lines, *names: str) -> Lines:
    return [line for line in lines if line["event"] in names]


async def test_the_start_says_what_is_served_and_the_end_what_is_waited_for() -> None:
    mq, begun, go_on = in_memory(), asyncio.Event(), asyncio.Event()

    @mq.consumer("orders", group="billing", concurrency=7, rate=Rate("14/s"))
    async def charge(_: Message) -> None:
        begun.set()
        await go_on.wait()

    async with mq:
        with capture_logs() as lines:
            async with at_work(mq) as worker:
                await mq.enqueue(Message(queue="orders"))
                await begun.wait()
                worker.stop()
                await eventually(lambda: bool(events(lines, "worker stops")))
                go_on.set()
    (serving,) = events(lines, "serving")
    assert (serving["queues"], serving["group"], serving["concurrency"], serving["rate"]) == (
        "orders", "billing", 7, "14/s",
    )  # fmt: skip
    assert serving["handler"].endswith("charge")
    assert [line["event"] for line in lines if line["event"].startswith("worker ")] == [
        "worker started", "worker stops", "worker stopped",
    ]  # fmt: skip
    (stops,) = events(lines, "worker stops")
    assert stops["waits_for_handlers"] == 1


async def test_a_success_is_a_line_for_developers_only() -> None:
    mq = in_memory()

    @mq.consumer("orders")
    async def charge(_: Message) -> None: ...

    async with mq:
        name = await mq.enqueue(Message(queue="orders"))
        with capture_logs() as lines:
            await run_until_empty(mq)
    (done,) = events(lines, "message done")
    assert (done["log_level"], done["message_id"], done["queue"]) == ("debug", name, "orders")


async def test_a_pause_and_its_end_are_logged_with_who_and_why() -> None:
    mq = in_memory()

    @mq.consumer("orders", group="billing")
    async def charge(_: Message) -> None: ...

    async with mq:
        with capture_logs() as lines:
            async with at_work(mq):
                await eventually(lambda: bool(events(lines, "worker started")))
                await mq.control.pause(QueueName("orders"), GroupName("billing"), reason="bank closed")
                await eventually(lambda: bool(events(lines, "paused")))
                await mq.control.resume(QueueName("orders"), GroupName("billing"))
                await eventually(lambda: bool(events(lines, "resumed")))
    (paused,) = events(lines, "paused")
    assert (paused["place"], paused["reason"]) == ("orders#billing", "bank closed")
    assert paused["by"]


async def test_each_minute_has_a_summary_if_anything_was_done() -> None:
    mq = in_memory()

    @mq.consumer("orders")
    async def charge(message: Message) -> None:
        if message.payload == "bad":
            raise ValueError("no such order")

    async with mq, at_work(mq) as worker:
        with capture_logs() as lines:
            await mq.enqueue_many([Message(queue="orders", payload=word) for word in ("good", "good", "bad")])
            await eventually(lambda: worker.counts.processed == 3)
            await worker._log.summary()
            await worker._log.summary()
    (summary,) = events(lines, "worked")
    assert (summary["processed"], summary["failed"], summary["in_hand"]) == (3, 1, 0)


def test_a_worker_that_falls_silent_is_logged_once_and_again_when_it_is_back() -> None:
    log = in_memory().worker(name="w1", consumers=[])._log

    def peer(name: str, beat_ms: int, now_ms: int, detail: str | None = None) -> ConsumerInstance:
        return ConsumerInstance(
            id=name, queue=QueueName("orders"), group=GroupName("g"), status=InstanceStatus.ACTIVE,
            last_heartbeat_ms=beat_ms, interval_ms=1_000, started_ms=0, detail=detail,
        ).seen(now_ms)  # fmt: skip

    with capture_logs() as lines:
        log.peers([peer("w2", 10_000, 12_000), peer("w1", 0, 12_000)], 12_000)
        log.peers([peer("w2", 10_000, 14_000), peer("w3", 0, 14_000, "stopped")], 14_000)
        log.peers([peer("w2", 10_000, 15_000)], 15_000)
        log.peers([peer("w2", 15_500, 16_000)], 16_000)
        log.peers([peer("w9", 0, 900_000)], 900_000)
    assert [(line["worker"], line["log_level"]) for line in lines] == [("w2", "warning"), ("w2", "info")]
    assert lines[0]["for_seconds"] == 4


@pytest.mark.parametrize("form", ["text", "json"])
async def test_the_command_writes_lines_for_people_or_machines(sample: SampleWorkers, form: str) -> None:
    command = [sys.executable, "-m", "godwit", "worker", "tests.runtime.sample_app:mq", "--log-format", form]
    environment = {**os.environ, "GODWIT_URL": sample.url, "SAMPLE_RECORD": str(sample.record)}
    await sample.publish("raise")
    process = await asyncio.create_subprocess_exec(*command, env=environment, stderr=asyncio.subprocess.PIPE)
    await eventually(sample.is_empty, within=STARTED)
    process.send_signal(signal.SIGTERM)
    _, said = await process.communicate()
    lines = said.decode().splitlines()
    if form == "text":
        assert any("worker starts broker=sqlite:///" in line and 'named_by="env GODWIT_URL"' in line for line in lines)
        assert any("ERROR" in line and "message given up" in line for line in lines)
        assert any(line.startswith("ConnectionError: the shop's bank is away") for line in lines)
        return
    found = [json.loads(line) for line in lines]
    assert [line["level"] for line in found if line["event"] in {"handler failed", "message given up"}] == [
        "warning", "warning", "error",
    ]  # fmt: skip
    (given_up,) = [line for line in found if line["event"] == "message given up"]
    assert "the shop's bank is away" in given_up["traceback"]
    assert {"worker starts", "worker started", "serving", "worker stops", "worker stopped"} <= {
        line["event"] for line in found
    }
