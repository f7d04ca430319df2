"""What the tests of the SQLite broker share: messages, helper processes, and a look into the file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

from godwit.brokers.contract import Ack, Delivery
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import GroupName, MessageId, QueueName
from godwit.core.queues import QueueSpec

Q = QueueName("orders")
G = GroupName("default")
LEASE = timedelta(minutes=5)
ROOT = Path(__file__).resolve().parents[3]


def envelope(id: str, *, size: int = 20, **fields: Any) -> Envelope:
    return Envelope(MessageId(id), fields.pop("queue", Q), b"x" * size, size, SYSTEM_CLOCK.now_ms(), **fields)


def envelopes(count: int, prefix: str = "m", *, size: int = 20) -> list[Envelope]:
    return [envelope(f"{prefix}-{number}", size=size) for number in range(count)]


async def declared(path: Path, **settings: Any) -> SqliteBroker:
    """Return an open broker on a file with one queue."""
    broker = SqliteBroker(path, **settings)
    await broker.declare(QueueSpec(name=Q))
    return broker


async def pull(broker: SqliteBroker, limit: int = 100, **options: Any) -> list[Delivery]:
    return await broker.pull(Q, G, worker="w", limit=limit, lease=options.pop("lease", LEASE), **options)


async def drain(broker: SqliteBroker) -> list[str]:
    """Pull and ack everything that is ready; return the ids in order."""
    ids: list[str] = []
    while deliveries := await pull(broker, 1_000):
        ids += [delivery.message_id for delivery in deliveries]
        assert await broker.settle([Ack(delivery.ack_id) for delivery in deliveries]) == []
    return ids


def start(script: str, *arguments: object, fault: str | None = None) -> subprocess.Popen[str]:
    """Start a Python process with the names of this module; its standard output is a pipe."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    if fault is not None:
        environment["GODWIT_FAULT"] = fault
    command = [
        sys.executable,
        "-c",
        f"import sys\nfrom tests.brokers.sqlite.files import *\n{script}",
        *map(str, arguments),
    ]
    return subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a helper process's work."""
    asyncio.run(work)


def say(word: object) -> None:
    """Tell the test something."""
    print(word, flush=True)


def heard(process: subprocess.Popen[str]) -> str:
    """Wait for the next word of a helper process."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ended(process: subprocess.Popen[str]) -> int:
    """Wait for a helper process and close its pipes."""
    process.communicate(timeout=200)
    return process.returncode


def integrity(path: Path) -> str:
    connection = sqlite3.connect(path)
    try:
        return str(connection.execute("PRAGMA integrity_check").fetchone()[0])
    finally:
        connection.close()


def size_of(path: str) -> int:
    return Path(path).stat().st_size


def names_in(folder: str) -> list[str]:
    return [path.name for path in Path(folder).iterdir()]
