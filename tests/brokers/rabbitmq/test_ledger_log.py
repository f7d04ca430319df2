"""The ledger's log: who waits for the disk, and that a long log moves into the file beside the work."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from godwit.brokers.rabbitmq.ledger import log, queries
from godwit.brokers.rabbitmq.ledger.file import LedgerFile
from godwit.core.clock import SYSTEM_CLOCK
from godwit.core.errors import BrokerUnavailable, GodwitError, StorageFull
from godwit.sqlite_writer.file_lock import FileLock
from tests.waiting import eventually


@pytest.fixture
async def ledger(tmp_path: Path) -> AsyncIterator[LedgerFile]:
    file = LedgerFile(tmp_path / "ledger.db", clock=SYSTEM_CLOCK)
    await file.open()
    yield file
    await file.close()


def is_free(ledger: LedgerFile) -> bool:
    """Say whether another process could write now."""
    lock = FileLock(Path(f"{ledger.path}.lock"))
    try:
        return lock.try_acquire()
    finally:
        lock.close()


def values(ledger: LedgerFile) -> int:
    """Count what another connection sees."""
    with closing(sqlite3.connect(ledger.path)) as other:
        return int(other.execute("SELECT count(*) FROM shared").fetchone()[0])


def log_bytes(ledger: LedgerFile) -> int:
    return Path(f"{ledger.path}-wal").stat().st_size


async def put(ledger: LedgerFile, key: str, *, durable: bool = False, size: int = 1) -> None:
    await ledger.step(lambda tx: queries.put(tx, key, b"x" * size, None, None), durable=durable)


async def test_only_a_durable_step_waits_for_the_disk_and_it_does_so_without_the_lock(
    ledger: LedgerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[bool, int]] = []
    monkeypatch.setattr(os, "fdatasync", lambda _file: seen.append((is_free(ledger), values(ledger))))
    for number in range(5):
        await put(ledger, f"brief{number}")
    assert seen == []
    await put(ledger, "durable", durable=True)
    assert seen == [(True, 6)], "committed, and nobody else has to wait"


@pytest.mark.parametrize(("number", "expected"), [(errno.ENOSPC, StorageFull), (errno.EIO, BrokerUnavailable)])
async def test_a_disk_that_does_not_take_the_log_fails_the_durable_step_only(
    ledger: LedgerFile, monkeypatch: pytest.MonkeyPatch, number: int, expected: type[GodwitError]
) -> None:
    def broken(_file: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fdatasync", broken)
    with pytest.raises(expected, match=r"ledger\.db"):
        await put(ledger, "a", durable=True)
    await put(ledger, "b")
    assert values(ledger) == 2


async def test_a_long_log_moves_into_the_file_while_steps_go_on(
    ledger: LedgerFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LONG_BYTES", 200_000)
    for number in range(40):
        await put(ledger, f"k{number}", size=20_000)
    assert log_bytes(ledger) > 200_000

    async def short() -> bool:
        await put(ledger, os.urandom(8).hex())
        return log_bytes(ledger) < 200_000

    await eventually(short, what="the log in the file")
    assert values(ledger) > 40


async def test_a_log_that_nobody_writes_moves_when_it_is_worth_it(ledger: LedgerFile) -> None:
    await put(ledger, "a", size=2_000_000)
    assert log_bytes(ledger) > log.SHORT_BYTES
    await eventually(lambda: log_bytes(ledger) < log.SHORT_BYTES, what="the log in the file")
    assert values(ledger) == 1


async def test_a_stranger_who_reads_stops_nobody(ledger: LedgerFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LONG_BYTES", 10_000)
    monkeypatch.setattr(log, "PAUSE_SECONDS", 600)
    tries: list[log.LedgerLog] = []
    move = log.LedgerLog.move

    def counted(one: log.LedgerLog) -> None:
        tries.append(one)
        move(one)

    monkeypatch.setattr(log.LedgerLog, "move", counted)
    await put(ledger, "a", size=20_000)
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as stranger:
        stranger.execute("BEGIN")
        assert stranger.execute("SELECT count(*) FROM shared").fetchone() == (1,)
        tries.clear()
        for number in range(20):
            await put(ledger, f"k{number}", durable=True)
        assert stranger.execute("SELECT count(*) FROM shared").fetchone() == (1,)
        stranger.execute("COMMIT")
    assert values(ledger) == 21
    assert len(tries) == 1, "nobody waits for the stranger more than once"
