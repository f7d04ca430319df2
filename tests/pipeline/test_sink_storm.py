"""The sink under fire: a fifth of all blocks kill their task, drivers are killed, the dedup window is long over."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from datetime import timedelta
from pathlib import Path

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.queues import JournalBody, QueueSpec
from godwit.pipeline.spark.jvm import Jvm
from tests.pipeline.drivers import Driver, until
from tests.pipeline.journals import url_of
from tests.pipeline.oracle import journal_rows

ROWS = int(os.environ.get("GODWIT_SPARK_SINK_ROWS", "50000"))
PARTS = 10


def arrived(path: Path) -> Counter[str]:
    return Counter(row["message_id"] for row in journal_rows(url_of(path)) if row["event"] == "enqueued")


def test_each_row_is_one_message_whatever_dies(tmp_path: Path, jvm: Jvm) -> None:
    path = tmp_path / "godwit.db"

    async def declare() -> None:
        spec = QueueSpec(
            name="orders", dedup_window=timedelta(milliseconds=1), max_size=10 * ROWS, journal_body=JournalBody.OFF
        )
        async with SqliteBroker(path) as broker:
            await broker.declare(spec)

    asyncio.run(declare())
    words = (url_of(path), str(ROWS), str(PARTS))
    first = Driver(words, module="tests.pipeline.sink_driver", fault="sink.published%20")
    until(lambda: sum(arrived(path).values()) >= ROWS // 5 or first.over)
    assert not first.over, first.lines
    first.kill()
    assert sum(arrived(path).values()) < ROWS
    Driver(words, module="tests.pipeline.sink_driver", jvm=jvm).finished()
    found = arrived(path)
    assert len(found) == ROWS
    assert set(found.values()) == {1}
