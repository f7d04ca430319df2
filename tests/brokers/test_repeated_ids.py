"""An id that is published again and again, without a dedup window, costs what as many ids cost."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from tests.conformance.harness import LONG, Harness, Q

MANY = {"memory": 20_000, "sqlite": 4_000}
AT_A_TIME = 1_000


async def seconds_for(harness: Harness, names: list[str]) -> float:
    """Return the processor time that publishing, pulling and settling messages of these ids takes."""
    began = time.process_time()
    for start in range(0, len(names), AT_A_TIME):
        await harness.publish(*names[start : start + AT_A_TIME])
    while found := await harness.pull(AT_A_TIME, lease=LONG):
        assert await harness.broker.settle([Ack(one.ack_id) for one in found]) == []
    return time.process_time() - began


@pytest.mark.parametrize("backend", MANY)
async def test_an_id_published_again_and_again_costs_what_as_many_ids_cost(backend: str, tmp_path: Path) -> None:
    harness = Harness(backend, tmp_path)
    await harness.start()
    await harness.declare(dedup_window=timedelta(0))
    one_each = await seconds_for(harness, [f"m{number}" for number in range(MANY[backend])])
    repeated = await seconds_for(harness, ["same"] * MANY[backend])
    assert repeated < 6 * one_each + 0.3
    await harness.publish("same", "same", "other")
    assert await harness.broker.cancel(Q, harness.envelope("same").id)
    assert await harness.ids() == ["other"]
    await harness.stop()


async def test_what_leads_to_messages_that_are_gone_is_forgotten(tmp_path: Path) -> None:
    harness = Harness("sqlite", tmp_path)
    await harness.start()
    await harness.declare(dedup_window=timedelta(0))
    await harness.publish(*["same"] * 50)
    with closing(sqlite3.connect(tmp_path / "godwit.db")) as file:
        count = "SELECT (SELECT count(*) FROM broker_repeats) + (SELECT count(*) FROM broker_ids)"
        await harness.broker.maintain()
        assert file.execute(count).fetchone() == (50,)
        assert await harness.ids() == ["same"] * 50
        for _ in range(301):  # a small table is swept once in so many steps
            await harness.broker.maintain()
        assert file.execute(count).fetchone() == (0,)
        await harness.publish(*["same"] * 50)
        await harness.broker.remove(Q)
        assert file.execute(count).fetchone() == (0,)
    await harness.stop()
