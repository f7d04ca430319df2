"""The settings a benchmark ran under, as they were in effect: it refuses to measure anything but the defaults."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from godwit.brokers.memory import MemoryBroker
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName, new_message_id
from godwit.core.queues import QueueSpec

PROBE = QueueName("probe")


async def sqlite_settings(folder: Path, spec: QueueSpec) -> dict[str, Any]:
    """Return how a broker with the defaults users get keeps a queue, looked up in its file and at its disk."""
    path = folder / "settings.db"
    async with SqliteBroker(path) as broker:
        await broker.declare(spec)
        await broker.declare(QueueSpec(name=PROBE))
        written_through = [await _syncs_of_a_publish(broker, path, count) for count in (1, 100)]
        reader = sqlite3.connect(path)
        (journal_mode,) = reader.execute("PRAGMA journal_mode").fetchone()
        (stored,) = reader.execute("SELECT spec FROM broker_queues WHERE name = ?", (spec.name,)).fetchone()
        (bodies,) = reader.execute("SELECT max(holds) FROM broker_runs").fetchone()
        reader.close()
    kept = msgspec.json.decode(stored, type=QueueSpec)
    _same("the queue's settings", kept, QueueSpec(name=spec.name))
    _same("journal_mode", journal_mode, "wal")
    _same("syncs of the log in a publish of 1 and of 100", written_through, [1, 1])
    _same("runs of messages the journal holds", bool(bodies), True)  # noqa: FBT003
    return {
        "durability": "a publish returns after fdatasync of the log (seen); pulls and acks leave that to the kernel",
        "dedup window": str(kept.dedup_window),
        "journal": f"on, with bodies (seen), kept {kept.journal_keep}, {kept.journal_max_bytes >> 20} MiB at most",
        "lanes": kept.lanes,
    }


async def memory_settings(spec: QueueSpec) -> dict[str, Any]:
    """Return how the memory broker with the defaults users get keeps a queue, as it can be seen to do."""
    _same("the queue's settings", spec, QueueSpec(name=spec.name))
    async with MemoryBroker() as broker:
        await broker.declare(spec)
        once = Envelope(new_message_id(), spec.name, b"x", 1, SYSTEM_CLOCK.now_ms())
        accepted = [(await broker.publish([once]))[0].fresh for _ in range(2)]
        (shard,) = await broker.journal.shards()
        chunks = await broker.journal.read(shard, limit=1_000)
    _same("the same message twice", accepted, [True, False])
    _same("journal of it", len(chunks) > 0, True)  # noqa: FBT003
    return {
        "dedup window": f"{spec.dedup_window} (seen)",
        "journal": f"on (seen), bodies {spec.journal_body} (off in memory), kept {spec.journal_keep}",
        "lanes": spec.lanes,
    }


async def _syncs_of_a_publish(broker: SqliteBroker, path: Path, count: int) -> int:
    now_ms = SYSTEM_CLOCK.now_ms()
    envelopes = [Envelope(new_message_id(), PROBE, b"x", 1, now_ms) for _ in range(count)]
    seen: list[int] = []
    sync = os.fdatasync

    def watched(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink() == path.with_name(f"{path.name}-wal"):
            seen.append(file)
        sync(file)

    os.fdatasync = watched  # type: ignore[assignment]
    try:
        await broker.publish(envelopes)
    finally:
        os.fdatasync = sync
    return len(seen)


def _same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise AssertionError(f"{what}: {found!r}, and users get {expected!r}")
