"""A scheduler process of the tests: ticks by a clock that the test sets, and dies at the fault point it is given."""

from __future__ import annotations

import asyncio
import os
import struct
from datetime import timedelta
from pathlib import Path

from godwit.brokers.sqlite import SqliteBroker
from godwit.core.fault_points import killer
from godwit.core.settings import SchedulerSettings, Settings
from godwit.manager import MessageQueueManager
from godwit.runtime.scheduler import sender, ticker
from godwit.store.postgres.schedule import schedules as postgres_schedules
from godwit.store.sqlite.schedule import schedules as sqlite_schedules
from godwit.store.urls import connect

POINTS = (
    "scheduler.planning",
    "scheduler.planned",
    "scheduler.claimed",
    "scheduler.publishing",
    "scheduler.published",
    "scheduler.confirmed",
)
LEASE = timedelta(minutes=3)


class FileClock:
    """A clock in eight bytes of a file, for several processes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR)

    def now_ms(self) -> int:
        found: int = struct.unpack("q", os.pread(self._file, 8, 0))[0]
        return found

    def set_ms(self, instant_ms: int) -> None:
        os.pwrite(self._file, struct.pack("q", instant_ms), 0)

    @classmethod
    def make(cls, path: Path, instant_ms: int) -> FileClock:
        path.write_bytes(struct.pack("q", instant_ms))
        return cls(path)


def open_manager(folder: Path, store_url: str, name: str) -> MessageQueueManager:
    clock = FileClock(folder / "clock")
    return MessageQueueManager(
        SqliteBroker(folder / "broker.db", clock=clock),
        store=connect(store_url),
        settings=Settings(scheduler=SchedulerSettings(look_ahead=timedelta(hours=1))),
        source=name,
        clock=clock,
    )


def work(folder: Path, store_url: str, name: str, fault: str = "") -> None:
    """Be a scheduler until it is killed."""
    point = killer(fault)
    for module in (sender, ticker, postgres_schedules, sqlite_schedules):
        module.fault_point = point  # type: ignore[attr-defined, unused-ignore]

    async def run() -> None:
        async with open_manager(folder, store_url, name) as mq:
            ticker = mq.scheduler._ticker
            ticker._lease = LEASE
            while True:
                await ticker.tick()
                await asyncio.sleep(0.05)

    asyncio.run(run())
