"""Files the broker cannot use are refused with a reason, and stay as they are."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack
from godwit.brokers.sqlite import SqliteBroker, backup
from godwit.core.errors import (
    BrokerBusy,
    BrokerClosed,
    BrokerUnavailable,
    InvalidSetting,
    StorageCorrupt,
    StorageFull,
    StorageTooNew,
    UnknownScheme,
)
from godwit.sqlite_writer.file_lock import FileLock
from godwit.sqlite_writer.location import file_system
from tests.brokers.sqlite.files import declared, drain, envelopes, integrity, pull, start

MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:26 / /srv/with\\040space rw shared:2 - nfs4 server:/x rw
31 22 0:27 / /srv/share rw - cifs //server/share rw
32 31 0:28 / /srv/share/local rw master:7 - xfs /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/godwit.db", "ext4"),
        ("/srv/with space/godwit.db", "nfs4"),
        ("/srv/share/godwit.db", "cifs"),
        ("/srv/shared/godwit.db", "ext4"),
        ("/srv/share/local/godwit.db", "xfs"),
    ],
)
def test_the_file_system_of_a_path_is_that_of_its_innermost_mount(path: str, kind: str) -> None:
    assert file_system(path, MOUNTS) == kind


@pytest.mark.parametrize("content", [b"this is not a database, it is a letter to my aunt", b"SQLite format 3"])
async def test_a_file_that_is_no_database_is_refused_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "letter.txt"
    path.write_bytes(content)
    with pytest.raises(StorageCorrupt, match="not an SQLite database"):
        await SqliteBroker(path).__aenter__()
    assert path.read_bytes() == content


async def test_a_damaged_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(100))
    damaged = path.read_bytes()[:100] + os.urandom(path.stat().st_size - 100)
    path.write_bytes(damaged)
    with pytest.raises(StorageCorrupt):
        await SqliteBroker(path).__aenter__()
    assert path.read_bytes() == damaged


async def test_a_file_of_a_newer_version_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    await (await declared(path)).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE broker_schema SET version = 99")
    connection.commit()
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StorageTooNew) as caught:
        await SqliteBroker(path).__aenter__()
    assert caught.value.found == 99
    assert path.read_bytes() == before


async def test_other_tables_in_the_file_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE schedules (id INTEGER)")
    connection.execute("INSERT INTO schedules VALUES (7)")
    connection.execute("PRAGMA user_version = 12")
    connection.commit()
    async with await declared(path) as broker:
        await broker.publish(envelopes(1))
    assert connection.execute("SELECT id FROM schedules").fetchone() == (7,)
    assert connection.execute("PRAGMA user_version").fetchone() == (12,)
    connection.close()


async def test_a_missing_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable, match="directory"):
        await SqliteBroker(tmp_path / "nowhere" / "godwit.db").__aenter__()


async def test_a_directory_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(BrokerUnavailable):
        await SqliteBroker(tmp_path).__aenter__()


async def test_a_full_disk_undoes_the_publish_and_later_ones_work_again(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db", max_pages=200) as broker:
        await broker.publish(envelopes(100, "early"))
        with pytest.raises(StorageFull):
            await broker.publish(envelopes(400, "large", size=4_000))
        ((stats,),) = [queue.groups for queue in await broker.stats()]
        assert stats.ready == 100
        await broker.publish(envelopes(10, "late"))
        assert len(await drain(broker)) == 110


async def test_a_full_disk_fails_only_the_call_that_needs_the_room(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db", max_pages=200) as broker:
        answers = await asyncio.gather(
            broker.publish(envelopes(10, "one")),
            broker.publish(envelopes(400, "large", size=4_000)),
            broker.publish(envelopes(10, "two")),
            return_exceptions=True,
        )
        assert [type(answer) for answer in answers] == [list, StorageFull, list]
        assert len(await drain(broker)) == 20
    assert integrity(tmp_path / "godwit.db") == "ok"


async def test_a_call_that_waits_too_long_for_other_writers_says_busy(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path, busy_timeout=timedelta(milliseconds=100)) as broker:
        lock = FileLock(Path(f"{path}.lock"))
        lock.acquire()
        with pytest.raises(BrokerBusy, match=r"publish within 0\.1 s"):
            await broker.publish(envelopes(1))
        lock.release()
        lock.close()
        assert await drain(broker) == []


async def test_a_closed_broker_takes_no_calls(tmp_path: Path) -> None:
    broker = await declared(tmp_path / "godwit.db")
    await broker.close()
    await broker.close()
    with pytest.raises(BrokerClosed):
        await broker.publish(envelopes(1))
    with pytest.raises(BrokerClosed):
        await broker.stats()


async def test_a_forked_child_is_told_to_open_its_own(tmp_path: Path) -> None:
    async with await declared(tmp_path / "godwit.db") as broker:
        child = os.fork()
        if not child:
            try:
                broker.publish(envelopes(1)).send(None)
            except BrokerUnavailable as error:
                os._exit(42 if "after the fork" in str(error) else 1)
            os._exit(1)
        assert os.waitstatus_to_exitcode((await asyncio.to_thread(os.waitpid, child, 0))[1]) == 42
        await broker.publish(envelopes(1))


def test_a_url_names_a_relative_or_an_absolute_file() -> None:
    assert SqliteBroker.from_url("sqlite:///godwit.db")._path == Path.cwd() / "godwit.db"
    assert SqliteBroker.from_url("sqlite:////srv/my%20data/godwit.db")._path == Path("/srv/my data/godwit.db")
    with pytest.raises(UnknownScheme):
        SqliteBroker.from_url("mysql://host/db")
    with pytest.raises(InvalidSetting):
        SqliteBroker.from_url("sqlite:///")


async def test_backups_under_load_open_and_hold_whole_publishes(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path):
        script = """
async def main():
    broker = SqliteBroker(sys.argv[1])
    say("ready")
    for number in range(10_000):
        await broker.publish(envelopes(50, number))
        if number % 2:
            deliveries = await pull(broker, 50)
            await broker.settle([Ack(delivery.ack_id) for delivery in deliveries])
run(main())
"""
        process = start(script, path)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in range(10):
            target = tmp_path / f"backup-{number}.db"
            await asyncio.to_thread(backup, path, target)
            assert integrity(target) == "ok"
            async with SqliteBroker(target) as broker:
                ((stats,),) = [queue.groups for queue in await broker.stats()]
                assert (stats.ready + stats.leased) % 50 == 0
        process.kill()
        process.communicate()


async def test_a_backup_onto_itself_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "godwit.db"
    async with await declared(path) as broker:
        await broker.publish(envelopes(1))
        with pytest.raises(InvalidSetting):
            backup(path, path)
        deliveries = await pull(broker)
        assert await broker.settle([Ack(delivery.ack_id) for delivery in deliveries]) == []


def locks_on(path: Path) -> int:
    """How many locks this machine's processes hold on a file."""
    inode = f":{path.stat().st_ino}"
    return sum(line.split()[5].endswith(inode) for line in Path("/proc/locks").read_text().splitlines())


async def test_opening_a_file_twice_in_a_process_leaves_the_first_ones_lock_alone(tmp_path: Path) -> None:
    """Without it the next broker to close takes the log away from under the other."""
    path = tmp_path / "godwit.db"
    async with SqliteBroker(path) as first:
        await first.stats()
        held = locks_on(path)
        assert held
        async with SqliteBroker(path) as second:
            await second.stats()
            assert locks_on(path) == held
        assert locks_on(path) == held
