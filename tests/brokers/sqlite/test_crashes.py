"""kill -9 at every named point: what was confirmed is there, what was not is there whole or not at all."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import backup
from tests.brokers.sqlite.files import declared, drain, ended, envelopes, integrity, pull, start

PUBLISH = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    await broker.publish(envelopes(150, "first"))
    say("confirmed")
    await broker.publish(envelopes(150, "second"))
    say("confirmed")
run(main())
"""
SETTLE = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    deliveries = await pull(broker, 50)
    await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
    say("settled")
run(main())
"""


@pytest.mark.parametrize(
    ("fault", "confirmed"),
    [
        ("sqlite.publish:1", 0),
        ("sqlite.before_commit:1", 0),
        ("sqlite.after_commit:1", 0),
        ("sqlite.publish:2", 1),
        ("sqlite.before_commit:2", 1),
        ("sqlite.after_commit:2", 1),
    ],
)
async def test_a_publisher_killed_anywhere_leaves_whole_publishes_only(
    tmp_path: Path, fault: str, confirmed: int
) -> None:
    path = tmp_path / "godwit.db"
    await (await declared(path)).close()
    process = start(PUBLISH, path, fault=fault)
    out, _ = process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    assert out.split() == ["confirmed"] * confirmed
    async with await declared(path) as broker:
        found = await drain(broker)
    assert len(found) % 150 == 0
    assert len(found) >= 150 * confirmed
    assert len(set(found)) == len(found)
    assert integrity(path) == "ok"


@pytest.mark.parametrize(
    ("fault", "left"), [("sqlite.settle", 50), ("sqlite.before_commit:2", 50), ("sqlite.after_commit:2", 0)]
)
async def test_a_settle_killed_anywhere_happened_wholly_or_not_at_all(tmp_path: Path, fault: str, left: int) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(50))
    process = start(SETTLE, path, fault=fault)
    assert ended(process) == -signal.SIGKILL
    async with await declared(path) as broker:
        ((stats,),) = [queue.groups for queue in await broker.stats()]
        assert (stats.leased, stats.ready) == (left, 0)


async def test_a_process_killed_before_a_checkpoint_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    await (await declared(path)).close()
    script = """
from godwit.brokers.sqlite.layout import file
file.CHECKPOINT_SECONDS = 0
async def main():
    broker = SqliteBroker(sys.argv[1])
    for number in range(100):
        await broker.publish(envelopes(10, number))
        say(number)
run(main())
"""
    process = start(script, path, fault="sqlite.before_checkpoint:20")
    out, _ = process.communicate(timeout=200)
    assert process.returncode == -signal.SIGKILL
    async with await declared(path) as broker:
        assert len(await drain(broker)) >= 10 * len(out.split())
    assert integrity(path) == "ok"


async def test_a_backup_killed_before_it_appears_leaves_the_former_one(tmp_path: Path) -> None:
    path, target = tmp_path / "godwit.db", tmp_path / "backup.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(10))
        backup(path, target)
        await broker.publish(envelopes(10, "later"))
        script = "from godwit.brokers.sqlite import backup\nbackup(sys.argv[1], sys.argv[2])"
        assert ended(start(script, path, target, fault="sqlite.before_backup_appears")) == -signal.SIGKILL
    async with await declared(target) as broker:
        assert len(await drain(broker)) == 10


async def test_a_lock_is_free_again_when_its_holder_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        script = """
import time
from godwit.sqlite_writer.file_lock import FileLock
FileLock(Path(sys.argv[1] + ".lock")).acquire()
say("held")
time.sleep(600)
"""
        process = start(script, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        publishing = broker.publish(envelopes(1))
        process.kill()
        assert ended(process) == -signal.SIGKILL
        assert len(await publishing) == 1


async def test_a_lease_of_a_killed_worker_is_taken_back_by_a_waiting_pull(tmp_path: Path) -> None:
    from datetime import timedelta

    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(1))
        script = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    await pull(broker, 1, lease=timedelta(milliseconds=300))
    say("held")
    os.kill(os.getpid(), 9)
run(main())
"""
        assert ended(start(script, path)) == -signal.SIGKILL
        (delivery,) = await pull(broker, wait=timedelta(seconds=10))
        assert delivery.crashes == 1
        assert await broker.settle([Ack(delivery.ack_id)]) == []
