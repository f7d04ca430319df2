"""Real worker processes of an application in `sample.py`, and what its handlers recorded outside Godwit."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Broker, GroupStats
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import MessageId, QueueName
from godwit.runtime.worker.heartbeat import InstanceStatus, instances
from godwit.sqlite_writer.file_lock import FileLock
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
ORDERS = QueueName("orders")
STARTED = timedelta(seconds=60)
"""A loaded machine takes its time to start processes; what is promised is counted from then on."""


class SampleWorkers:
    """A SQLite file, the record of its handlers, and worker processes."""

    def __init__(self, folder: Path, broker: Broker, url: str) -> None:
        self.broker = broker
        self.record = folder / "record"
        self.url = url

    @contextmanager
    def worker(
        self, *options: str, seconds: float = 0.0, target: str = "tests.runtime.sample_app:mq", **environment: str
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Run `godwit worker` until the block ends, with the store it has by default: the broker's own file."""
        known = {
            "GODWIT_URL": self.url,
            "SAMPLE_RECORD": str(self.record),
            "SAMPLE_SECONDS": str(seconds),
        }
        command = [sys.executable, "-m", "godwit", "worker", target, *options]
        process = subprocess.Popen(command, env={**os.environ, **known, **environment}, cwd=ROOT)
        try:
            yield process
        finally:
            for number in (signal.SIGCONT, signal.SIGTERM, signal.SIGINT):  # one that is frozen hears nothing else
                process.send_signal(number)
            process.wait(120)

    async def freeze(self, process: subprocess.Popen[bytes]) -> None:
        """Stop a process while it holds neither the file nor its lock: it would hold up all that write."""
        while True:
            process.send_signal(signal.SIGSTOP)
            await asyncio.to_thread(os.waitid, os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            if await asyncio.to_thread(self._can_be_written):
                return
            process.send_signal(signal.SIGCONT)
            # Stopped again at once it would not get to let go: it hardly runs between the two signals.
            await eventually(lambda: asyncio.to_thread(self._can_be_written), what="letting go of the file")

    def _can_be_written(self) -> bool:
        path = self.url.removeprefix("sqlite:///")
        moment = 0.2  # far less than a lease: what a frozen worker holds shall still be its own when it has to go on
        with (
            closing(FileLock(Path(f"{path}.lock"))) as lock,
            closing(sqlite3.connect(path, timeout=moment, isolation_level=None)) as file,
        ):
            if not lock.acquire_within(moment):
                return False
            try:
                file.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return False
            return True

    async def publish(self, *payloads: str, queue: QueueName = ORDERS, first: int = 0) -> None:
        """Publish messages o0, o1, ..."""
        await self.broker.publish(
            [seal(Message(queue=queue, id=MessageId(f"o{n}"), payload=one)) for n, one in enumerate(payloads, first)]
        )

    def recorded(self, word: str) -> list[str]:
        """Return the message ids recorded with a word, in order."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        return [line.split()[1] for line in lines if line.startswith(f"{word} ")]

    def pids(self) -> set[int]:
        """Return the processes that handled something."""
        return {int(line.split()[2]) for line in self.record.read_text().splitlines()}

    async def group(self, queue: QueueName = ORDERS) -> GroupStats:
        """Return the numbers of a queue's one group."""
        (found,) = (one for one in await self.broker.stats() if one.name == queue)
        return found.groups[0]

    async def is_empty(self, queue: QueueName = ORDERS) -> bool:
        """Say whether nothing is open."""
        return (await self.group(queue)).depth == 0

    async def states(self) -> Counter[InstanceStatus]:
        """Count the instances by their state."""
        return Counter(one.status for one in await instances(self.broker.shared, SYSTEM_CLOCK))


def catches_sigterm(pid: int) -> bool:
    """Say whether a process handles SIGTERM itself by now."""
    status = Path(f"/proc/{pid}/status").read_text()
    caught = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)
