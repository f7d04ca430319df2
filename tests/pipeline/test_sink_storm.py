"""The sink under fire: a fifth of all blocks kill their task, drivers are killed, the dedup window is long over."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.queues import JournalBody, QueueSpec
from tests.pipeline.drivers import members
from tests.pipeline.making import url_of
from tests.pipeline.oracle import journal_rows
from tests.project.specification import ROOT

ROWS = int(os.environ.get("GODWIT_SPARK_SINK_ROWS", "50000"))
PARTS = 10


def started(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pipeline.sinker", url, str(ROWS), str(PARTS)],
        cwd=ROOT, env={**os.environ, "GODWIT_FAULT": "sink.published%20"}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, start_new_session=True,
    )  # fmt: skip


def arrived(path: Path) -> Counter[str]:
    return Counter(row["message_id"] for row in journal_rows(url_of(path)) if row["event"] == "enqueued")


@pytest.mark.timeout(1_800)
def test_each_row_is_one_message_whatever_dies(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"

    async def declare() -> None:
        spec = QueueSpec(
            name="orders", dedup_window=timedelta(milliseconds=1), max_size=10 * ROWS, journal_body=JournalBody.OFF
        )
        async with SqliteBroker(path) as broker:
            await broker.declare(spec)

    asyncio.run(declare())
    first = started(url_of(path))
    deadline = time.monotonic() + 900
    while sum(arrived(path).values()) < ROWS // 5:
        assert first.poll() is None, first.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.5)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    while members(first.pid):
        time.sleep(0.05)
    assert sum(arrived(path).values()) < ROWS
    second = started(url_of(path))
    said, _ = second.communicate(timeout=900)
    assert second.returncode == 0, said
    found = arrived(path)
    assert len(found) == ROWS
    assert set(found.values()) == {1}
