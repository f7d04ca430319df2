"""The servers of the tests end with the process that started them, also when it is killed with -9, and not before."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.servers.processes import children, start
from tests.servers.redis import redis_server
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
_KEEP = """
import signal
from tests.servers import postgres, rabbitmq, redis, redis_cluster, redis_replicas

with {servers}:
    print("up", flush=True)
    signal.pause()
"""


def keeper(servers: str, folder: str) -> subprocess.Popen[bytes]:
    """Start a process that starts servers, with their files in a folder, and then says so and waits."""
    Path(folder).chmod(0o711)  # PostgreSQL has a user of its own
    return subprocess.Popen(
        [sys.executable, "-c", _KEEP.format(servers=servers)],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": folder},
        stdout=subprocess.PIPE,
    )


def descendants(pid: int) -> list[int]:
    """Return the processes below a process."""
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]


def lives(pid: int) -> bool:
    """Say whether a process runs; a dead one that was not waited for yet does not."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in "ZX"
    return False


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()
    return ""


async def nothing_outlives_the_keeper_of(servers: str, *programs: str) -> None:
    """Kill a process that keeps servers up, these programs among them, and wait until nothing below it is left."""
    below: list[int] = []
    with tempfile.TemporaryDirectory(prefix="godwit-kept-") as folder, keeper(servers, folder) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            below = descendants(process.pid)
            running = [command(pid) for pid in below]
            assert [name for name in programs if not any(name in line for line in running)] == []
            process.kill()
            await eventually(lambda: not any(map(lives, below)), what=f"the end of {running}")
        finally:
            process.kill()
            for pid in filter(lives, below):
                os.kill(pid, signal.SIGKILL)


async def test_no_redis_or_postgres_server_outlives_a_killed_process() -> None:
    servers = (
        'redis.redis_server(), redis.redis_server("valkey"), redis_cluster.redis_cluster(), '
        "redis_replicas.redis_sentinels(), postgres.postgres_server()"
    )
    programs = ("redis-server", "valkey", "[cluster]", "[sentinel]", "bin/postgres", "checkpointer")
    await nothing_outlives_the_keeper_of(servers, *programs)


@pytest.mark.xdist_group("rabbitmq")
async def test_no_rabbitmq_node_outlives_a_killed_process() -> None:
    await nothing_outlives_the_keeper_of("rabbitmq.cluster(on_disk=True)", "epmd", "beam.smp", "erl_child_setup")


async def test_a_server_outlives_the_thread_that_started_it() -> None:
    with redis_server() as server, server.client() as client:
        server.kill()
        thread = threading.Thread(target=server.start)
        thread.start()
        thread.join()
        # Linux kills what a thread has to take along before it forgets the thread.
        await eventually(lambda: not Path(f"/proc/self/task/{thread.native_id}").exists(), what="the thread's end")
        assert client.ping()


def test_nothing_starts_below_a_process_that_ended_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", os.getppid)  # the new process finds another parent than it expects
    assert start(["touch", tmp_path / "started"], tmp_path / "log").wait() != 0
    assert not (tmp_path / "started").exists()
