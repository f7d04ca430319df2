"""Examines the SQLite file of a broker or store: its disk, its log, its health, how long its journal holds."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import statistics
import tempfile
import time
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import msgspec

from godwit.admin.doctor.findings import Finding, note, ok, problem, warning
from godwit.admin.doctor.journals import examine_journals
from godwit.admin.doctor.units import seconds_in_words, size
from godwit.brokers.sqlite import SqliteBroker
from godwit.brokers.sqlite.layout.file import open_reader, translated
from godwit.brokers.sqlite.layout.recount import examined
from godwit.core.errors import BrokerUnavailable
from godwit.core.queues import QueueSpec
from godwit.sqlite_writer.connection import check_header
from godwit.sqlite_writer.location import MOUNTS, REMOTE, file_system

FLEETING: Final = frozenset({"tmpfs", "ramfs", "rootfs", "overlay"})
"""File systems whose content ends with the machine or the container."""
LOG_BYTES: Final = 64 << 20
"""The broker empties its log above this."""
WAL_RESET_FIXED: Final = (3, 51, 3)
OLDEST: Final = (3, 37, 0)
QUICK_CHECK_BYTES: Final = 256 << 20
SYNCS: Final = 5
SLOW_SYNC_SECONDS: Final = 0.05
FULL_BYTES, TIGHT_BYTES = 100 << 20, 1 << 30
TIGHT_SHARE: Final = 0.1
FREE_PAGES_SHARE: Final = 0.5
FREE_PAGES_BYTES: Final = 64 << 20


class SqliteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What can be seen of a file and its disk without changing either."""

    path: str
    version: tuple[int, ...]
    mode: str
    file_bytes: int
    log_bytes: int
    free_pages_bytes: int
    file_system: str | None
    disk_free: int
    disk_total: int
    writable: bool
    sync_seconds: float | None
    broken: str | None
    """What the check of the file found; None when it is whole or too large to check in passing."""
    checked: bool


async def examine(url: str, *, span: timedelta) -> list[Finding]:
    """Look at the file a URL names."""
    path = existing_file(url)
    facts = await asyncio.to_thread(gather, path)
    found = judge(facts)
    specs = await asyncio.to_thread(_specs, path)
    if specs is not None and facts.writable and facts.broken is None:
        found.append(await asyncio.to_thread(_counters, path))
        async with SqliteBroker(path) as broker:
            found += await examine_journals(broker.journal, specs, span=span)
    return found


def existing_file(url: str) -> Path:
    """Return the file a URL names; refuse what is not there or no database, without touching it."""
    path = Path(unquote(url.removeprefix("sqlite:///"))).absolute()
    if not path.is_file():
        remedy = "Name an existing file: sqlite:///file.db (relative) or sqlite:////var/file.db (absolute)."
        raise BrokerUnavailable(f"sqlite:///{path}", "there is no such file", remedy)
    check_header(path)
    return path


def gather(path: Path) -> SqliteFacts:
    """Collect the facts; the only writing is of a small file beside it, to see how long the disk takes."""
    log = path.with_name(f"{path.name}-wal")
    disk = shutil.disk_usage(path.parent)
    try:
        with closing(open_reader(path)) as connection:
            page, pages, free = (
                int(connection.execute(f"PRAGMA {name}").fetchone()[0])
                for name in ("page_size", "page_count", "freelist_count")
            )
            mode = str(connection.execute("PRAGMA journal_mode").fetchone()[0])
            checked = page * pages <= QUICK_CHECK_BYTES
            verdict = str(connection.execute("PRAGMA quick_check(1)").fetchone()[0]) if checked else "ok"
    except sqlite3.DatabaseError as error:
        raise translated(error, path, "examining the file") from error
    mounts = MOUNTS.read_text(errors="surrogateescape") if MOUNTS.exists() else ""
    return SqliteFacts(
        path=str(path),
        version=sqlite3.sqlite_version_info,
        mode=mode,
        file_bytes=path.stat().st_size,
        log_bytes=log.stat().st_size if log.exists() else 0,
        free_pages_bytes=free * page,
        file_system=file_system(str(path), mounts),
        disk_free=disk.free,
        disk_total=disk.total,
        writable=os.access(path, os.W_OK) and os.access(path.parent, os.W_OK),
        sync_seconds=_sync_seconds(path.parent),
        broken=None if verdict == "ok" else verdict,
        checked=checked,
    )


def _sync_seconds(folder: Path) -> float | None:
    """Return how long the disk takes to make a page safe: what every publish waits for."""
    times = []
    with suppress(OSError), tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SYNCS):
            file.write(b"\0" * 4096)
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - began)
    return statistics.median(times) if times else None


def _specs(path: Path) -> dict[str, QueueSpec] | None:
    """Return the queues declared in the file; None when no broker has used it."""
    with closing(open_reader(path)) as connection:
        try:
            rows = connection.execute("SELECT name, spec FROM broker_queues").fetchall()
        except sqlite3.OperationalError:
            return None
    return {name: msgspec.json.decode(spec, type=QueueSpec) for name, spec in rows}


def _counters(path: Path) -> Finding:
    """Compare what each group is said to hold with what it holds."""
    with closing(open_reader(path)) as connection:
        wrong, mended = examined(connection)
    if wrong:
        queue, group, counters = wrong[0]
        first = ", ".join(f"{name} {said:,} (counted: {counted:,})" for name, (said, counted) in counters.items())
        return warning(
            "counters",
            f"{len(wrong)} groups say another number than they hold; {group} of {queue}: {first}",
            "Statistics and limits are wrong, and a pull may find nothing although messages wait.",
            "Any worker on this file mends them within ten minutes; if they come back, report it.",
        )
    if mended:
        return note("counters", f"agree with what is stored; mended {mended:,} times", "They should never disagree.")
    return ok("counters", "agree with what is stored")


def judge(facts: SqliteFacts) -> list[Finding]:
    """Say what each fact means."""
    return [
        _version(facts),
        _health(facts),
        _mode(facts),
        _place(facts),
        _disk(facts),
        _log(facts),
        _sync(facts),
        _pages(facts),
        _access(facts),
    ]


def _version(facts: SqliteFacts) -> Finding:
    version = ".".join(map(str, facts.version))
    if facts.version < OLDEST:
        return problem(
            "version",
            f"SQLite {version}",
            "Godwit needs RETURNING and STRICT tables, which this version lacks.",
            "Use a Python built with SQLite 3.37 or newer.",
        )
    if facts.version < WAL_RESET_FIXED:
        return ok(
            "version",
            f"SQLite {version}",
            "Before 3.51.3 a checkpoint that races a write can corrupt the file; Godwit lets only the holder of its "
            "own lock checkpoint. Do not checkpoint or VACUUM this file with other tools while it is in use.",
        )
    return ok("version", f"SQLite {version}")


def _health(facts: SqliteFacts) -> Finding:
    if facts.broken is not None:
        return problem(
            "health",
            f"the file is damaged: {facts.broken}",
            "Messages may be unreadable, and further writes can make it worse.",
            "Stop all processes that use it and restore a backup (godwit backup makes one).",
        )
    if not facts.checked:
        return note(
            "health",
            f"not checked: {size(facts.file_bytes)} take too long in passing",
            "A check reads the whole file.",
            "Check a backup instead: godwit backup copy.db, then godwit doctor sqlite:///copy.db or sqlite3's "
            "PRAGMA integrity_check.",
        )
    return ok("health", f"{size(facts.file_bytes)}, quick check in order")


def _mode(facts: SqliteFacts) -> Finding:
    if facts.mode != "wal":
        return warning(
            "journal mode",
            facts.mode,
            "Without a write-ahead log readers and the writer wait for each other; some other tool has changed it.",
            "Open it once with Godwit while no other process uses it: it goes back to WAL by itself.",
        )
    return ok("journal mode", "wal; publishes wait for the disk, pulls and settlements leave the log to the kernel")


def _place(facts: SqliteFacts) -> Finding:
    kind = facts.file_system or "unknown"
    if kind in REMOTE:
        return problem(
            "file system",
            f"{kind} (a network file system)",
            "Locks and shared memory do not reach other machines, so two of them can corrupt the file.",
            "Move it to a local disk, or use Redis or RabbitMQ for several machines.",
        )
    if kind in FLEETING:
        return warning(
            "file system",
            kind,
            "What lies there is gone when the machine or the container ends.",
            "Put the file on a disk or a mounted volume, unless it is only for a trial.",
        )
    return ok("file system", kind)


def _disk(facts: SqliteFacts) -> Finding:
    found = f"{size(facts.disk_free)} of {size(facts.disk_total)} free"
    why = "A publish that finds no room is refused; until there is room again nothing moves."
    remedy = "Free some space, move the file to a larger disk, or lower journal_max_bytes."
    if facts.disk_free < FULL_BYTES:
        return problem("disk", found, why, remedy)
    if facts.disk_free < min(TIGHT_BYTES, facts.disk_total * TIGHT_SHARE):
        return warning("disk", found, why, remedy)
    return ok("disk", found)


def _log(facts: SqliteFacts) -> Finding:
    if facts.log_bytes > 2 * LOG_BYTES:
        return warning(
            "write-ahead log",
            size(facts.log_bytes),
            f"Godwit empties it above {size(LOG_BYTES)}; it grows past that only while one reads for a long time.",
            "Look for a tool that keeps a transaction open on the file (sqlite3, a backup script) and end it.",
        )
    return ok("write-ahead log", size(facts.log_bytes))


def _sync(facts: SqliteFacts) -> Finding:
    if facts.sync_seconds is None:
        return note("sync", "not measured: the folder cannot be written", "Every publish waits for one sync.")
    found = f"{seconds_in_words(facts.sync_seconds)} to make a page safe"
    if facts.sync_seconds > SLOW_SYNC_SECONDS:
        return warning(
            "sync",
            found,
            "Every publish waits for one; a caller that awaits each message cannot be faster.",
            "Use a faster disk, or publish in batches (enqueue_many, concurrent enqueues): they share one sync.",
        )
    return ok("sync", found)


def _pages(facts: SqliteFacts) -> Finding:
    free = facts.free_pages_bytes
    found = f"{size(free)} of {size(facts.file_bytes)} unused"
    if free > FREE_PAGES_BYTES and free > facts.file_bytes * FREE_PAGES_SHARE:
        return note(
            "room inside",
            found,
            "A backlog has been here. The room is used again before the file grows, so this costs only disk.",
            "To give it back: stop all its processes, then sqlite3 FILE 'VACUUM'.",
        )
    return ok("room inside", found)


def _access(facts: SqliteFacts) -> Finding:
    if not facts.writable:
        return problem(
            "access",
            "this user cannot write the file or its folder",
            "The log and the lock lie beside the file, so its folder must be writable as well.",
            "Change their owner or permissions, or run as their owner.",
        )
    return ok("access", "readable and writable")
