from __future__ import annotations

import statistics

import pytest

from benchmarks.recorder import MESSAGES, bare_copy, broker_with_queue, life, overheard, postgres_store, timed
from tests.servers.postgres import fresh_database, shared


@pytest.mark.serial
async def test_recording_is_at_least_a_third_as_fast_as_a_bare_copy_of_what_it_writes() -> None:
    """The target is 0.3; `./dev bench recorder` measures it with more patience."""
    server, found = shared(), []
    for number in range(3):
        broker = await broker_with_queue()
        await life(broker, f"speed{number}")
        async with postgres_store(server) as (store, _):
            with overheard() as copied:
                rate = await timed(broker, store)
        with fresh_database(server) as other:
            found.append(rate * await bare_copy(other, copied) / (3 * MESSAGES))
    assert statistics.median(found) >= 0.3, found
