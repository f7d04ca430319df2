"""Every call of a store may be cancelled at any point: no connection is missing, no lock held, the next call works."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from itertools import count
from typing import Any, Final

import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import QueueSpec
from godwit.runtime.recorder.census import take_census
from godwit.runtime.recorder.recorder import Recorder
from godwit.store.contract import Store
from godwit.store.effects import EffectOutcome
from godwit.store.postgres import PostgresStore
from tests.cancellation import cancelled_everywhere
from tests.scheduler.builders import HOUR, LEASE, NOON, firing, rule
from tests.store.conformance.harness import StoreHarness

pytestmark = pytest.mark.timeout(120)
CONNECTIONS: Final = 2
HOLD: Final = timedelta(minutes=5)
NUMBERS: Final = count()
Call = Callable[[Store], Awaitable[Any]]


@pytest.fixture
async def store(harness: StoreHarness) -> AsyncIterator[Store]:
    """Open a store with so few connections that one that is missing is missed."""
    few = PostgresStore(harness.url, pool_size=CONNECTIONS) if harness.backend == "postgres" else harness.open()
    async with few as opened:
        yield opened


async def open_and_close(store: Store) -> None:
    url = store.database._url if isinstance(store, PostgresStore) else store.url
    async with StoreHarness("", url).open() as other:
        await other.ping()


async def record(store: Store) -> None:
    async with MemoryBroker() as broker:
        await broker.declare(QueueSpec(name="orders"))
        await broker.publish([seal(Message(queue="orders"))])
        await Recorder(broker.journal, store.messages).catch_up()
        await take_census(broker, store.messages)


async def claim_and_finish(store: Store) -> None:
    key = f"key{next(NUMBERS)}"
    await store.ledger.claim(key, holder="a", hold=HOLD, ttl=HOLD)
    await store.ledger.keep(key, holder="a", to="b", hold=HOLD, ttl=HOLD)
    await store.ledger.finish(key, holder="b", ttl=HOLD, result=b"1")
    await store.ledger.release(key, holder="b")


async def send_firings(store: Store) -> None:
    await store.schedules.put([firing(f"f{next(NUMBERS)}")])
    claimed = await store.schedules.claim(now=NOON, until=NOON + HOUR, limit=5, owner="w", lease=LEASE)
    await store.schedules.confirm([one.id for one in claimed], owner="w", now=NOON)


CALLS: Final[dict[str, Call]] = {
    "open and close": open_and_close,
    "ping": lambda store: store.ping(),
    "the schema's status": lambda store: store.migrations.status(),
    "record": record,
    "positions": lambda store: store.messages.positions(),
    "status": lambda store: store.messages.status("nobody"),
    "retain": lambda store: store.messages.retain(timedelta(days=1)),
    "an effect": claim_and_finish,
    "sweep": lambda store: store.ledger.sweep(),
    "the outbox": lambda store: store.outbox.claim(hold=HOLD, limit=5),
    "the outbox's backlog": lambda store: store.outbox.backlog(),
    "a schedule": lambda store: store.schedules.add(rule(f"r{next(NUMBERS)}")),
    "schedules": lambda store: store.schedules.page(),
    "firings": send_firings,
    "the schedules' backlog": lambda store: store.schedules.backlog(now=NOON),
    "prune": lambda store: store.schedules.prune(before=NOON),
    "pipelines": lambda store: store.pipelines.places(),
    "forget a pipeline": lambda store: store.pipelines.forget("nightly"),
}


@pytest.mark.parametrize("call", CALLS)
async def test_a_call_may_be_cancelled_at_any_point(store: Store, call: str) -> None:
    async def check() -> None:
        async with asyncio.timeout(8):
            await asyncio.gather(*(store.ping() for _ in range(CONNECTIONS + 1)))
            won = await store.ledger.claim(f"key{next(NUMBERS)}", holder="a", hold=HOLD, ttl=HOLD)
            assert won.outcome is EffectOutcome.WON
            await store.schedules.put([firing(f"f{next(NUMBERS)}")])

    await store.ping()
    await cancelled_everywhere(lambda: CALLS[call](store), check, may_return=call == "open and close")
