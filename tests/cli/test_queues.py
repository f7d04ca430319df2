from __future__ import annotations

import asyncio
import json

import pytest

from godwit.cli.shown.quantities import size_text
from godwit.core.messages.message import Message
from godwit.manager import MessageQueueManager
from tests.cli.terminal import Terminal


@pytest.fixture(autouse=True)
def two_queues(terminal: Terminal) -> None:
    terminal.type("publish", "orders", "--declare", input="1\n2\n3\n")
    terminal.type(
        "publish", "a-queue-with-quite-a-long-name-that-needs-more-than-half-a-line", "1", "--declare", "--delay", "1h"
    )


def test_every_queue_and_group_is_a_line(terminal: Terminal) -> None:
    head, first, second = terminal.type("queues").stdout.splitlines()
    assert head.split() == ["queue", "group", "ready", "blocked", "delayed", "leased", "dead", "bytes", "full", "state"]
    assert first.split()[:7] == [
        "a-queue-with-quite-a-long-name-that-needs-more-than-half-a-line",
        "default",
        "0",
        "0",
        "1",
        "0",
        "0",
    ]
    assert second.split()[:3] == ["orders", "default", "3"]
    assert head.index("ready") + len("ready") == second.index(" 3 ") + 2


def test_one_document_holds_everything(terminal: Terminal) -> None:
    (queues,) = terminal.json("queues", "orders")
    (queue,) = queues
    assert (queue["name"], queue["published"], queue["duplicates"]) == ("orders", 3, 0)
    (group,) = queue["groups"]
    assert set(group) == {
        "name", "ready", "blocked", "delayed", "leased", "dead", "bytes", "leased_bytes", "dropped", "full", "depth",
        "state", "rate",
    }  # fmt: skip
    assert (group["ready"], group["depth"], group["full"]) == (3, 3, False)


def test_producers_are_shown_with_their_rate_while_they_live(terminal: Terminal) -> None:
    async def produce() -> None:
        async with MessageQueueManager.from_url(terminal.url, source="web-shop") as mq:
            await mq.enqueue_many([Message(queue="orders") for _ in range(30)])
            await mq.producer.tick()
            ((queue,),) = await asyncio.to_thread(terminal.json, "queues", "orders")
            (producer,) = queue["producers"]
            assert (producer["name"], producer["accepted"]) == ("web-shop", 30)
            assert producer["per_second"] > 0
            shown = (await asyncio.to_thread(terminal.type, "queues")).stdout
            assert shown.splitlines()[-2].split() == ["producer", "accepted", "failed", "per", "second", "queues"]
            assert shown.splitlines()[-1].split()[:3] == ["web-shop", "30", "0"]
            numbers = await mq.monitor.get_metrics()
            assert numbers.producers["web-shop"] > 0
            async with MessageQueueManager.from_url(terminal.url) as other:
                assert (await other.monitor.get_metrics()).producers["web-shop"] > 0

    asyncio.run(produce())
    ((queue,),) = terminal.json("queues", "orders")
    assert queue["producers"] == [], "it left the list"


def test_watching_shows_them_again(terminal: Terminal) -> None:
    looks = terminal.type("queues", "orders", "--watch", "--every", "1ms", "--times", "3")
    assert looks.stdout.count("in/s") == 3
    lines = terminal.type("queues", "--watch", "--every", "1ms", "--times", "2", "--json").stdout.splitlines()
    assert [len(json.loads(line)) for line in lines] == [2, 2]


def test_an_unknown_queue_is_named_with_those_there_are(terminal: Terminal) -> None:
    error = terminal.error("queues", "order", code=4)
    assert "'orders'" in error["fact"]


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KB"), (3 << 30, "3.0 GB"), (5 << 50, "5120.0 TB")]
)
def test_sizes_are_short(number: int, text: str) -> None:
    assert size_text(number) == text
