"""Server processes of one test run: private folders, free loopback ports, and only pids that we started."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from tests.steal_time import calm

HOST = "127.0.0.1"
START_SECONDS = 90
STOP_SECONDS = 20
_ENDS_WITH_US = ("setpriv", "--pdeathsig", "KILL", "sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')
"""Becomes the command that follows our pid, which Linux kills when we end; not if we ended before that was arranged."""


class ServerDown(RuntimeError):
    """A server of the tests did not come up; the text holds the end of its log."""


_SERVER_PORTS = 10_000, 32_000


def free_ports(count: int) -> list[int]:
    """Return so many different ports that are free.

    They are not of those that the system gives to connections: one of these could take a port before its server does.
    """
    found: list[int] = []
    with contextlib.ExitStack() as stack:
        while len(found) < count:
            port = random.randrange(*_SERVER_PORTS)
            with contextlib.suppress(OSError):
                stack.enter_context(socket.socket()).bind((HOST, port))
                found.append(port)
    return found


def accepts(port: int) -> bool:
    """Say whether a process listens on a port."""
    try:
        with socket.create_connection((HOST, port), timeout=0.5):
            return True
    except OSError:
        return False


def as_ordinary_user(folder: Path, *names: str) -> dict[str, Any]:
    """Return what `Popen` needs to leave root behind, for servers that refuse it; the folder changes hands."""
    if os.geteuid() != 0:
        return {}
    for name in (*names, "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            os.chown(folder, user.pw_uid, user.pw_gid)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": [], "cwd": "/"}
    raise ServerDown(f"root must step down for this server, and there is no user {' or '.join(names)}")


def start(command: Sequence[str | Path], log: Path, **options: Any) -> subprocess.Popen[bytes]:
    """Start a server that ends with this process, however that ends; its words are added to the log."""
    if shutil.which(_ENDS_WITH_US[0]):
        command = [*_ENDS_WITH_US, str(os.getpid()), *command]

    def started() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # an interrupt of the terminal is for pytest, which then stops its servers
                **options,
            )

    return _starter().submit(started).result()


@cache
def _starter() -> ThreadPoolExecutor:
    """Return the thread that starts all servers: Linux kills them when it ends, and those of event loops end early."""
    return ThreadPoolExecutor(1, thread_name_prefix="starter")


os.register_at_fork(after_in_child=_starter.cache_clear)  # a fork has none of our threads


def await_server(
    ready: Callable[[], bool], process: subprocess.Popen[Any], log: Path, *, seconds: float = START_SECONDS
) -> None:
    """Return when the server is ready; raise with the end of its log when it ends or takes too long."""
    deadline = calm() + seconds
    while not ready():
        if process.poll() is not None or calm() > deadline:
            text = log.read_text(errors="replace")[-2_000:] if log.exists() else ""
            ended = "ended" if process.poll() is not None else f"was not ready within {seconds:.0f} s"
            raise ServerDown(f"{process.args!r} {ended}:\n{text}")
        time.sleep(0.02)


def stop(process: subprocess.Popen[Any], how: signal.Signals = signal.SIGTERM) -> None:
    """End a process we started, with force when it does not listen."""
    if process.poll() is None:
        process.send_signal(how)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def children(pid: int) -> list[int]:
    """Return the processes that a process has started, whichever of its threads did; none when it is gone."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):  # one that has just ended hides nothing of the others
                found += map(int, (thread / "children").read_text().split())
    return found
