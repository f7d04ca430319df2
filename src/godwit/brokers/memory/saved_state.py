"""What a memory broker still holds when it is closed: saved to a SQLite file, and taken from there at the next start.

Every open copy is kept for its group, in order, with its due time and expiry. Its counters begin again, and what was
leased is ready: the process that held it has ended. Dead letters, the journal and shared values are not kept. The file
is no broker: nothing but a memory broker with the same `?spill=` reads it.

Tables: `queues(name, spec)`, `groups(queue, name, spec)` with the declarations as JSON, and `copies(place, queue,
envelope)`, MessagePack.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from godwit.brokers.contract import PUBLISH_CHUNK
from godwit.brokers.memory.engine import MemoryEngine
from godwit.brokers.memory.group import DEAD, DELAYED
from godwit.brokers.memory.queue import MemoryQueue
from godwit.brokers.memory.stats import all_copies
from godwit.core.errors import BrokerUnavailable
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName
from godwit.core.queues import GroupSpec, QueueSpec

_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS queues (name TEXT PRIMARY KEY, spec BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS groups (queue TEXT, name TEXT, spec BLOB NOT NULL, PRIMARY KEY (queue, name));
CREATE TABLE IF NOT EXISTS copies (place INTEGER PRIMARY KEY, queue TEXT NOT NULL, envelope BLOB NOT NULL);
"""
_REMEDY: Final = "Name a file that can be written, in a folder that exists, with ?spill=."
_decoder = msgspec.msgpack.Decoder(Envelope)


def left_over(engine: MemoryEngine) -> tuple[int, int]:
    """Return how many open copies and how many dead letters would end with the process."""
    groups = [group for queue in engine.queues for group in queue.groups.values()]
    return sum(group.depth for group in groups), sum(len(group.letters) for group in groups)


def save(path: Path, engine: MemoryEngine) -> int:
    """Write every open copy to the file, beside what it has; return their number."""
    count = 0
    with closing(_opened(path)) as file, file:
        for queue in engine.queues:
            envelopes = list(_open_copies(queue))
            if not envelopes:
                continue
            file.execute(
                "INSERT OR REPLACE INTO queues VALUES (?, ?)", (queue.spec.name, msgspec.json.encode(queue.spec))
            )
            file.executemany(
                "INSERT OR REPLACE INTO groups VALUES (?, ?, ?)",
                [(queue.spec.name, group.name, msgspec.json.encode(group.spec)) for group in queue.groups.values()],
            )
            file.executemany(
                "INSERT INTO copies (queue, envelope) VALUES (?, ?)",
                [(queue.spec.name, msgspec.msgpack.encode(envelope)) for envelope in envelopes],
            )
            count += len(envelopes)
    return count


def _open_copies(queue: MemoryQueue) -> Iterator[Envelope]:
    for group in queue.groups.values():
        alive = [copy for copy in all_copies(group) if copy.place < DEAD]
        for copy in sorted(alive, key=lambda copy: copy.seq):
            yield msgspec.structs.replace(
                copy.envelope,
                group=group.name,
                deliver_at_ms=copy.ready_ms if copy.place == DELAYED else None,
                expires_at_ms=copy.expires_ms or None,
            )


def load(path: Path, engine: MemoryEngine, now_ms: int) -> int:
    """Take what the file holds into the engine, which keeps it from then on; return the number of copies."""
    if not path.exists():
        return 0
    with closing(_opened(path)) as file, file:
        count = 0
        for name, spec in file.execute("SELECT name, spec FROM queues").fetchall():
            groups = file.execute("SELECT spec FROM groups WHERE queue = ? ORDER BY rowid", (name,)).fetchall()
            engine.declare(
                msgspec.json.decode(spec, type=QueueSpec),
                [msgspec.json.decode(group, type=GroupSpec) for (group,) in groups],
            )
            rows = file.execute("SELECT envelope FROM copies WHERE queue = ? ORDER BY place", (name,))
            while chunk := rows.fetchmany(PUBLISH_CHUNK):
                engine.take_in(QueueName(name), [_decoder.decode(envelope) for (envelope,) in chunk], now_ms)
                count += len(chunk)
        for table in ("copies", "groups", "queues"):
            file.execute(f"DELETE FROM {table}")  # noqa: S608 # three words of our own
        return count


def _opened(path: Path) -> sqlite3.Connection:
    try:
        file = sqlite3.connect(path)
        file.executescript(_SCHEMA)
    except sqlite3.Error as error:
        raise BrokerUnavailable(str(path), str(error), _REMEDY) from error
    return file
