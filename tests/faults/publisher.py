"""A publisher to be killed: it goes on where its record ends, with the same ids."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Broker, Receipt
from godwit.brokers.urls import connect
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.errors import BrokerUnavailable, NotReplicated, PartialPublish, StorageFull
from godwit.core.messages.envelope import Envelope
from godwit.core.names import MessageId
from tests.conformance.harness import Q
from tests.faults.patient_open import OUTAGE_SECONDS, PAUSE, opened
from tests.faults.record import Record, raised, read
from tests.waiting import real_time

BODY = b"x" * 200
KEYS = 20
"""Ordering keys of one publisher; every third message has none."""


def envelope(name: str, number: int) -> Envelope:
    """Return message `number` of the publisher `name`: id, key and body follow from these two."""
    key = f"{name}-{number % KEYS}" if number % 3 else None
    return Envelope(
        MessageId(f"{name}-{number:06}"),
        Q,
        BODY,
        len(BODY),
        SYSTEM_CLOCK.now_ms(),
        priority=(number * 37) % 101,
        ordering_key=key,
    )


def number_of(message_id: str) -> int:
    """Return the number an id was made from."""
    return int(message_id.rpartition("-")[2])


def publish(url: str, record: Path, *, name: str, count: int, batch: int) -> None:
    """Publish messages up to number `count`, writing down each that was accepted."""
    asyncio.run(_publish(url, record, name, count, batch))


async def _publish(url: str, record: Path, name: str, count: int, batch: int) -> None:
    done = sum(line[0] == "accepted" for line in read(record))
    seen = Record(record)
    async with opened(url) as broker:
        for first in range(done, count, batch):
            envelopes = [envelope(name, number) for number in range(first, min(first + batch, count))]
            receipts = await publish_through_outages(broker, envelopes)
            seen.write(*(("accepted", receipt.id, receipt.fresh) for receipt in receipts))


async def publish_through_outages(broker: Broker, envelopes: Sequence[Envelope]) -> list[Receipt]:
    """Publish; while the broker is away try the same messages again, as an application would."""
    until = time.monotonic() + OUTAGE_SECONDS
    while True:
        try:
            return await broker.publish(envelopes)
        except (BrokerUnavailable, NotReplicated, PartialPublish):
            if time.monotonic() > until:
                raise
            await real_time(PAUSE)


def publish_steadily(url: str, record: Path, *, name: str, stop: Path, batch: int, pause: timedelta) -> None:
    """Publish until the file `stop` exists, writing down what was accepted, and when."""
    asyncio.run(_publish_steadily(url, Record(record), name, stop, batch, pause))


async def _publish_steadily(url: str, record: Record, name: str, stop: Path, batch: int, pause: timedelta) -> None:
    first = 0
    async with opened(url) as broker:
        while not raised(stop):
            receipts = await publish_through_outages(broker, [envelope(name, first + n) for n in range(batch)])
            record.write(*(("accepted", receipt.id, time.monotonic_ns()) for receipt in receipts))
            first += batch
            await real_time(pause)


def publish_until_refused(url: str, record: Path, *, name: str) -> None:
    """Publish until there is no room left, writing down each message that was accepted."""
    with suppress(StorageFull):
        asyncio.run(_publish(url, record, name, 1_000_000, 50))


def publish_and_die(url: str, record: Path, *, times: int, at_once: int) -> None:
    """Fork publishers of one message each, some at once, all of which kill themselves; fails if one ends otherwise."""
    for number in range(times):
        if number >= at_once:
            _expect_a_death()
        if os.fork() == 0:
            asyncio.run(_publish_one_and_die(url, record, envelope("lone", number)))
    for _ in range(min(times, at_once)):
        _expect_a_death()


def _expect_a_death() -> None:
    _, status = os.wait()
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL


async def _publish_one_and_die(url: str, record: Path, lone: Envelope) -> None:
    """Publish one message, write down its id, and be gone before anything can be tidied up."""
    broker = connect(url)
    await broker.__aenter__()
    (receipt,) = await broker.publish([lone])
    Record(record).write(("accepted", receipt.id, receipt.fresh))
    os.kill(os.getpid(), signal.SIGKILL)
