"""Group commit, checkpoints, counters, wake-ups: how the file is written and who hears of it."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import time
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, GiveUp, HandBack, Nack
from godwit.brokers.sqlite import SqliteBroker
from godwit.brokers.sqlite.layout import file
from godwit.core.errors import BrokerUnavailable, QueueNotFound, StorageFull
from godwit.core.failures.failure import FailureKind
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.sqlite_writer import transactions
from godwit.sqlite_writer.file_lock import FileLock
from tests.brokers.sqlite.files import G, Q, declared, drain, envelope, envelopes, heard, names_in, pull, size_of, start
from tests.waiting import eventually

COUNTED = """
SELECT
    (SELECT count(*) FROM broker_waiting WHERE group_id = g.id AND slot < 8),
    (SELECT count(*) FROM broker_waiting WHERE group_id = g.id AND slot = 8),
    (SELECT count(*) FROM broker_waiting WHERE group_id = g.id AND slot = 9),
    (SELECT count(*) FROM broker_letters WHERE group_id = g.id),
    (SELECT count(*) FROM broker_waiting WHERE group_id = g.id AND expiry IS NOT NULL),
    (SELECT count(*) FROM broker_skips WHERE group_id = g.id),
    g.explicit, g.delayed, g.blocked, g.dead, g.expiring, g.skips
FROM broker_groups g
"""


async def test_calls_that_wait_together_share_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = watch_commits(monkeypatch)
    async with await declared(tmp_path / "godwit.db") as broker:
        commits.clear()
        await asyncio.gather(*(broker.publish([envelope(f"m-{number}")]) for number in range(200)))
        assert len(commits) < 50
        assert await drain(broker) == [f"m-{number}" for number in range(200)]


async def test_one_refused_call_of_a_commit_does_not_undo_the_others(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db") as broker:
        answers = await asyncio.gather(
            broker.publish([envelope("a")]),
            broker.publish([envelope("b", queue=QueueName("unknown"))]),
            broker.publish([envelope("c")]),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [list, QueueNotFound, list]
        assert await drain(broker) == ["a", "c"]


async def test_publishes_are_written_through_and_pulls_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "godwit.db"
    seen = watch_the_disk(monkeypatch, path)
    counts: dict[str, int] = {}
    async with await declared(path) as broker:
        for name, count in (("one", 1), ("many", 100), ("many again", 100)):
            seen.clear()
            await broker.publish(envelopes(count, name))
            counts[name] = len(seen)
        seen.clear()
        deliveries = await pull(broker, 2)
        await broker.settle([GiveUp(deliveries[0].ack_id, FailureKind.PERMANENT), Ack(deliveries[1].ack_id)])
        counts["pull and settle"] = len(seen)
        (letter,) = await broker.dead_letters.page(Q)
        await broker.dead_letters.replay([letter.id])
        counts["replay"] = len(seen)
    assert counts == {"one": 1, "many": 1, "many again": 1, "pull and settle": 0, "replay": 1}


async def test_others_go_on_while_a_publish_waits_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(1))
        seen = watch_the_disk(monkeypatch, path)
        await broker.publish(envelopes(1, "n"))
    # Committed, so that the disk's answer covers it, and no writer is kept out meanwhile.
    assert seen == [(2, True)]


async def test_a_publish_the_disk_does_not_take_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with await declared(tmp_path / "godwit.db") as broker:
        for number, (code, error) in enumerate(((errno.EIO, BrokerUnavailable), (errno.ENOSPC, StorageFull))):

            def fail(_: int, code: int = code) -> None:
                raise OSError(code, os.strerror(code))

            with monkeypatch.context() as patch:
                patch.setattr(os, "fdatasync", fail)
                with pytest.raises(error):
                    await broker.publish(envelopes(1, str(number)))
            # Publishing again is safe: it may have been stored, and then it is the same message.
            await broker.publish(envelopes(1, str(number)))
        assert await drain(broker) == ["0-0", "1-0"]


def watch_the_disk(monkeypatch: pytest.MonkeyPatch, path: Path) -> list[tuple[int, bool]]:
    """At each sync of the log, note how many publishes a reader sees, and whether another writer could go on."""
    seen: list[tuple[int, bool]] = []
    sync = os.fdatasync

    def watched(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").readlink() == Path(f"{path}-wal"):
            reader = sqlite3.connect(path)
            (published,) = reader.execute("SELECT coalesce(sum(publish_seq), 0) FROM broker_shards").fetchone()
            reader.close()
            lock = FileLock(Path(f"{path}.lock"))
            seen.append((published, lock.try_acquire()))
            lock.close()
        sync(file)

    monkeypatch.setattr(os, "fdatasync", watched)
    return seen


async def test_a_pull_and_a_settlement_of_one_turn_share_a_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits = watch_commits(monkeypatch)
    async with await declared(tmp_path / "godwit.db") as broker:
        await broker.publish(envelopes(4))
        (first,) = await pull(broker, 1)
        commits.clear()
        found, refused, unknown = await asyncio.gather(
            pull(broker, 1), broker.settle([Ack(first.ack_id)]), broker.settle([Ack(first.ack_id)])
        )
        assert [len(found), refused, unknown] == [1, [], [first.ack_id]]
        assert len(commits) == 1


async def test_a_pull_given_up_before_its_turn_takes_nothing(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db") as broker:
        await broker.publish(envelopes(3))
        pulls = [asyncio.create_task(pull(broker, 1)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in pulls[:2]:
            one.cancel()
        found = await asyncio.gather(*pulls, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in found] == [True, True, False]
        await eventually(lambda: _leased(broker, 1))


async def _leased(broker: SqliteBroker, expected: int) -> bool:
    return (await broker.stats())[0].groups[0].leased == expected


def watch_commits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    commits: list[str] = []
    patched = "sqlite.after_commit"
    monkeypatch.setattr(transactions, "fault_point", lambda name: commits.append(name) if name == patched else None)
    return commits


async def test_the_log_stays_small_while_there_is_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "CHECKPOINT_SECONDS", 0.0)
    monkeypatch.setattr(file, "WAL_BYTES", 1 << 20)
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        for number in range(60):
            await broker.publish(envelopes(100, str(number), size=1_000))
            assert size_of(f"{path}-wal") < 4 << 20


async def test_everything_survives_a_reopening(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(10))
        deliveries = await pull(broker, 4)
        await broker.settle([Nack(deliveries[0].ack_id, timedelta(hours=1)), Ack(deliveries[1].ack_id)])
        await broker.settle([GiveUp(deliveries[2].ack_id, FailureKind.PERMANENT)])
        before = await broker.stats()
        snapshot = await broker.journal.snapshot(Q)
    async with SqliteBroker(path) as broker:
        assert await broker.stats() == before
        assert await broker.journal.snapshot(Q) == snapshot
        assert await broker.settle([Ack(deliveries[3].ack_id)]) == []


async def test_counters_equal_what_can_be_counted(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with SqliteBroker(path) as broker:
        groups = [GroupSpec(name=G), GroupSpec(name=GroupName("ordered"), message_ordering=True)]
        await broker.declare(QueueSpec(name=Q), groups)
        now_ms = broker.clock.now_ms()
        await broker.publish(envelopes(30))
        await broker.publish([envelope(f"k-{number}", ordering_key=f"key-{number % 3}") for number in range(9)])
        await broker.publish([envelope("later", deliver_at_ms=now_ms + 3_600_000), envelope("only", group=G)])
        await broker.publish([envelope("ends", expires_at_ms=now_ms + 3_600_000)])
        await broker.cancel(Q, envelope("m-20").id)
        for group in (G, GroupName("ordered")):
            held = await broker.pull(Q, group, worker="w", limit=12, lease=timedelta(minutes=1))
            await broker.settle(
                [
                    Ack(held[0].ack_id),
                    Nack(held[1].ack_id),
                    Nack(held[2].ack_id, timedelta(hours=1)),
                    GiveUp(held[3].ack_id, FailureKind.POISON),
                    HandBack(held[4].ack_id),
                ]
            )
        connection = sqlite3.connect(path)
        for row in connection.execute(COUNTED):
            assert row[:6] == row[6:]
        connection.close()
        for queue in await broker.stats():
            copies = (await broker.journal.snapshot(Q)).copies
            for stats in queue.groups:
                mine = [copy for copy in copies if copy.group == stats.name]
                assert sum(copy.state == "leased" for copy in mine) == stats.leased
                assert sum(copy.state == "dead" for copy in mine) == stats.dead
                assert sum(copy.state == "waiting" for copy in mine) == stats.ready + stats.blocked + stats.delayed
        await broker.remove(Q)
        connection = sqlite3.connect(path)
        tables = ("waiting", "skips", "heads", "leases", "letters", "groups", "ids")
        assert [connection.execute(f"SELECT count(*) FROM broker_{table}").fetchone()[0] for table in tables] == [0] * 7
        assert connection.execute("SELECT sum(live) FROM broker_runs").fetchone() == (0,)
        connection.close()


async def test_bodies_go_when_the_journal_no_longer_needs_them(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with SqliteBroker(path) as broker:
        await broker.declare(QueueSpec(name=Q, journal_max_bytes=1))
        await broker.publish(envelopes(100))
        await drain(broker)
        await broker.journal.trim()
        connection = sqlite3.connect(path)
        assert connection.execute("SELECT count(*) FROM broker_bodies").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM broker_runs").fetchone() == (0,)
        connection.close()


async def test_a_publish_of_another_process_wakes_a_waiting_pull(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        script = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    await broker.stats()
    say("ready")
    while line := sys.stdin.readline():
        await broker.publish([envelope(line.strip())])
        say("published")
run(main())
"""
        process = start(script, path)
        assert process.stdin is not None
        assert heard(process) == "ready"
        for number in range(5):
            waiting = asyncio.create_task(pull(broker, wait=timedelta(seconds=20)))
            await eventually(lambda: any(spot.waited_for for spot in broker._listeners._spots.values()))
            process.stdin.write(f"m-{number}\n")
            process.stdin.flush()
            assert [delivery.message_id for delivery in await waiting] == [f"m-{number}"]
        process.stdin.close()
        await asyncio.to_thread(process.wait)
        for pipe in (process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


async def test_the_socket_of_a_dead_process_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    script = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    asyncio.get_running_loop().call_later(0.2, lambda: os.kill(os.getpid(), 9))
    await pull(broker, wait=timedelta(seconds=30))
run(main())
"""
    async with await declared(path) as broker:
        process = start(script, path)
        process.communicate()
        assert len(names_in(f"{path}.wake")) == 1
        await broker.publish(envelopes(1))
        assert names_in(f"{path}.wake") == []


async def test_a_path_longer_than_a_socket_address_works(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    folder.mkdir()
    async with await declared(folder / "godwit.db") as broker:
        waiting = asyncio.create_task(pull(broker, wait=timedelta(seconds=20)))
        await eventually(lambda: any(spot.waited_for for spot in broker._listeners._spots.values()))
        await broker.publish(envelopes(1))
        assert len(await waiting) == 1


async def test_a_hundred_idle_pulls_cost_next_to_nothing(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db") as broker:
        pulls = [asyncio.create_task(pull(broker, wait=timedelta(seconds=2))) for _ in range(100)]
        await eventually(
            lambda: sum(one.waits for spot in broker._listeners._spots.values() for one in spot.listeners) == 100
        )
        began = time.process_time()
        assert await asyncio.gather(*pulls) == [[]] * 100
        assert time.process_time() - began < 0.5  # most of it is the last pull of each
