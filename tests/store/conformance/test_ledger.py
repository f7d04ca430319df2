"""The ledger: one holder at a time, and once done, remembered."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from godwit.core.errors import InvalidSetting
from godwit.store.contract import Store
from godwit.store.effects import EffectOutcome
from tests.store.conformance.harness import StoreHarness
from tests.waiting import eventually

LONG = timedelta(minutes=5)
MOMENT = timedelta(milliseconds=30)


async def claim(store: Store, holder: str, *, hold: timedelta = LONG, ttl: timedelta = LONG) -> EffectOutcome:
    return (await store.ledger.claim("charge:7", holder=holder, hold=hold, ttl=ttl)).outcome


async def test_a_key_is_claimed_by_one_and_done_for_all(store: Store) -> None:
    assert await claim(store, "a") is EffectOutcome.WON
    held = await store.ledger.claim("charge:7", holder="b", hold=LONG, ttl=LONG)
    assert held.outcome is EffectOutcome.HELD
    assert timedelta(0) < held.held_for <= LONG
    assert await store.ledger.finish("charge:7", holder="a", ttl=LONG, result=b'{"id": 3}')
    done = await store.ledger.claim("charge:7", holder="b", hold=LONG, ttl=LONG)
    assert (done.outcome, done.result) == (EffectOutcome.DONE, b'{"id": 3}')
    assert await claim(store, "a") is EffectOutcome.DONE


async def test_of_twenty_at_once_one_wins(harness: StoreHarness, store: Store) -> None:
    outcomes = await asyncio.gather(*(claim(store, f"h{number}") for number in range(20)))
    assert outcomes.count(EffectOutcome.WON) == 1
    assert outcomes.count(EffectOutcome.HELD) == 19


async def test_the_same_holder_gets_its_claim_again(store: Store) -> None:
    assert await claim(store, "message-1") is EffectOutcome.WON
    assert await claim(store, "message-1") is EffectOutcome.WON


async def test_a_claim_whose_holder_fell_silent_is_free_after_its_hold(store: Store) -> None:
    assert await claim(store, "a", hold=MOMENT) is EffectOutcome.WON

    async def taken_over() -> bool:
        return await claim(store, "b") is EffectOutcome.WON

    await eventually(taken_over)
    assert not await store.ledger.finish("charge:7", holder="a", ttl=LONG), "the late one must not mark it done"
    assert await claim(store, "c") is EffectOutcome.HELD


async def test_a_released_key_is_free_and_a_done_one_is_not_released(store: Store) -> None:
    await claim(store, "a")
    await store.ledger.release("charge:7", holder="b")
    assert await claim(store, "b") is EffectOutcome.HELD
    await store.ledger.release("charge:7", holder="a")
    assert await claim(store, "b") is EffectOutcome.WON
    await store.ledger.finish("charge:7", holder="b", ttl=LONG)
    await store.ledger.release("charge:7", holder="b")
    assert await claim(store, "c") is EffectOutcome.DONE


async def test_a_done_key_is_forgotten_after_its_ttl(store: Store) -> None:
    await claim(store, "a")
    await store.ledger.finish("charge:7", holder="a", ttl=MOMENT)

    async def forgotten() -> bool:
        return await claim(store, "b") is EffectOutcome.WON

    await eventually(forgotten)


async def test_sweeping_removes_what_is_forgotten_and_nothing_else(store: Store) -> None:
    for number in range(5):
        await store.ledger.claim(f"old{number}", holder="a", hold=LONG, ttl=LONG)
        await store.ledger.finish(f"old{number}", holder="a", ttl=timedelta(microseconds=1))
    await claim(store, "a")
    swept: list[int] = []

    async def all_swept() -> bool:
        swept.append(await store.ledger.sweep(limit=3))
        return sum(swept) == 5

    await eventually(all_swept)
    assert max(swept) <= 3
    assert await claim(store, "b") is EffectOutcome.HELD


@pytest.mark.parametrize("connection", [None, object()])
async def test_a_connection_that_is_none_is_refused(store: Store, connection: Any) -> None:
    with pytest.raises(InvalidSetting, match="connection"):
        await store.ledger.finish_within(connection, "key", holder="a", ttl=LONG)


async def test_a_claim_is_kept_in_another_name_by_its_holder_only(store: Store) -> None:
    assert await claim(store, "a") is EffectOutcome.WON
    assert not await store.ledger.keep("charge:7", holder="b", to="c", hold=LONG, ttl=LONG)
    assert await store.ledger.keep("charge:7", holder="a", to="thread", hold=LONG, ttl=LONG)
    assert await claim(store, "a") is EffectOutcome.HELD, "its former holder has it no more"
    assert not await store.ledger.finish("charge:7", holder="a", ttl=LONG)
    assert await store.ledger.finish("charge:7", holder="thread", ttl=LONG, result=b"1")
    assert not await store.ledger.keep("charge:7", holder="thread", to="thread", hold=LONG, ttl=LONG), "it is done"
