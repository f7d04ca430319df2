"""A worker to be killed: it writes down what it was given before it does anything, and what it settled afterwards.

Lines: `["delivered", id, attempt, key, at]`, then `[end, id, attempt, began, ended, how]` where the end is settled,
refused, or unsure: the broker went away over it. Times are those of CLOCK_MONOTONIC in nanoseconds, which all processes
of a machine share.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path
from random import Random

from godwit.brokers.contract import Ack, Delivery, HandBack, Nack, Settlement
from godwit.core.errors import BrokerUnavailable
from tests.conformance.harness import G, Q
from tests.faults.patient_open import opened
from tests.faults.record import Record, raised
from tests.waiting import real_time

WAIT = timedelta(milliseconds=200)
HOW = {"ack": Ack, "retry": Nack, "hand back": HandBack}


def work(
    url: str,
    record: Path,
    *,
    name: str,
    stop: Path,
    lease: timedelta,
    limit: int,
    acks: float = 1.0,
    longest: timedelta = timedelta(0),
) -> None:
    """Pull and settle until the file `stop` exists; a share of `acks` is done, the rest goes back.

    A handler takes up to `longest`.
    """
    asyncio.run(_work(url, Record(record), name, stop, lease, limit, acks, longest))


async def _work(
    url: str, record: Record, name: str, stop: Path, lease: timedelta, limit: int, acks: float, longest: timedelta
) -> None:
    random = Random(name)
    async with opened(url) as broker:
        while not raised(stop):
            try:
                deliveries = await broker.pull(Q, G, worker=name, limit=limit, lease=lease, wait=WAIT)
            except BrokerUnavailable:
                continue
            if not deliveries:
                continue
            began = time.monotonic_ns()
            record.write(*(("delivered", *_known(one), one.envelope.ordering_key, began) for one in deliveries))
            if longest:
                await real_time(random.random() * longest)
            hows = ["ack" if random.random() < acks else random.choice(("retry", "hand back")) for _ in deliveries]
            settlements: list[Settlement] = [HOW[how](one.ack_id) for how, one in zip(hows, deliveries, strict=True)]
            ended = time.monotonic_ns()
            try:
                refused = set(await broker.settle(settlements))
                ends = ["refused" if one.ack_id in refused else "settled" for one in deliveries]
            except BrokerUnavailable:
                ends = ["unsure"] * len(deliveries)
            record.write(
                *((end, *_known(one), began, ended, how) for end, how, one in zip(ends, hows, deliveries, strict=True))
            )


def _known(delivery: Delivery) -> tuple[str, int]:
    return delivery.message_id, delivery.attempt


def hold_one(url: str, record: Path, *, name: str, lease: timedelta, go_on: Path) -> None:
    """Take one message, keep it until the file `go_on` exists, then ack it."""
    asyncio.run(_hold_one(url, Record(record), name, lease, go_on))


async def _hold_one(url: str, record: Record, name: str, lease: timedelta, go_on: Path) -> None:
    async with opened(url) as broker:
        (delivery,) = await broker.pull(Q, G, worker=name, limit=1, lease=lease, wait=timedelta(seconds=10))
        record.write(("delivered", *_known(delivery), None, time.monotonic_ns()))
        while not raised(go_on):
            await real_time(timedelta(milliseconds=5))
        refused = await broker.settle([Ack(delivery.ack_id)])
        record.write(("refused" if refused else "settled", *_known(delivery), 0, 0, "ack"))
