"""The hunt for lost wake-ups: messages published around the moment a puller of another process begins to wait."""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.urls import connect
from tests.conformance.harness import LONG, Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import envelope, number_of
from tests.faults.reconciliation import url_of
from tests.steal_time import pause

FALLBACK = timedelta(milliseconds=250)
"""How often a waiting process looks at the file by itself: what a lost wake-up costs."""
SOON_SECONDS = FALLBACK.total_seconds() * 0.4
WINDOW_SECONDS = 0.003
"""Settling the last message and beginning to wait again takes about so long."""


def publish_on_demand(url: str, line: Connection, *, seed: int) -> None:
    """Publish one message for each number that comes down the line, at a random moment; answer with the time."""
    asyncio.run(_publish_on_demand(url, line, Random(seed)))


async def _publish_on_demand(url: str, line: Connection, random: Random) -> None:
    async with connect(url) as broker:
        while (number := line.recv()) is not None:
            moment = time.monotonic() + random.random() * WINDOW_SECONDS
            while time.monotonic() < moment:
                pass  # a sleep would be too coarse
            await broker.publish([envelope("p", number)])
            line.send(time.monotonic_ns())


@pytest.mark.serial
@pytest.mark.parametrize("count", [300, 5_000])
async def test_no_wake_up_is_lost(tmp_path: Path, children: ChildProcesses, file: Harness, count: int) -> None:
    await file.declare()
    ours, theirs = multiprocessing.Pipe()
    publisher = children.start(publish_on_demand, url_of(tmp_path), theirs, seed=count)
    late = 0
    ours.send(0)
    for number in range(count):
        delivery = await file.pull_one(wait=timedelta(seconds=10), lease=LONG)
        arrived = time.monotonic_ns()
        assert number_of(delivery.message_id) == number
        published = ours.recv()  # it is on its way: the message came first
        late += pause(published, arrived) > SOON_SECONDS
        assert late <= count // 100, f"{late} of {number + 1} messages were found by looking, not by a wake-up"
        ours.send(number + 1 if number + 1 < count else None)
        await file.broker.settle([Ack(delivery.ack_id)])
    await children.finished(publisher)
    assert (await file.stats()).depth == 0
