"""Several Redis servers that belong together: what clusters, sentinels and replicas of the tests have in common."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import redis

from tests.servers.processes import HOST, ServerDown
from tests.servers.redis import STARTS, TAKEN, Program, RedisServer
from tests.steal_time import calm

T = TypeVar("T")
SETTLE_SECONDS = 60.0


def ask(server: RedisServer, *words: Any) -> Any:
    """Return a server's plain answer to a command."""
    with server.client(protocol=2) as client:
        client.response_callbacks.clear()
        answer = client.execute_command(*words)
        return answer.decode() if isinstance(answer, bytes) else answer


def until(condition: Callable[[], bool], what: str, *, seconds: float = SETTLE_SECONDS) -> None:
    """Return when a condition of servers holds."""
    deadline = calm() + seconds
    while True:
        with contextlib.suppress(redis.RedisError, StopIteration):
            if condition():
                return
        if calm() > deadline:
            raise ServerDown(f"{what} did not come within {seconds:g} s")
        time.sleep(0.05)


def on_free_ports(stack: contextlib.ExitStack, begin: Callable[[contextlib.ExitStack], T]) -> T:
    """Start servers that have each other's ports in their files; on other ports when one was taken meanwhile."""
    for attempt in range(1, STARTS + 1):
        with contextlib.ExitStack() as started:
            try:
                servers = begin(started)
            except ServerDown as error:
                if attempt == STARTS or TAKEN not in str(error):
                    raise
                continue
            stack.push(started.pop_all())
            return servers
    raise AssertionError("unreachable")


@contextlib.contextmanager
def running(
    program: Program,
    port: int,
    folder: Path,
    settings: Sequence[str],
    *,
    bus_port: int = 0,
    arguments: tuple[str, ...] = (),
) -> Iterator[RedisServer]:
    """Run a server on a given port with the settings it is given, and nothing else."""
    (folder / "server.conf").write_text("\n".join([*settings, ""]))
    server = RedisServer(
        program=program,
        port=port,
        folder=folder,
        url=f"redis://{HOST}:{port}/0",
        arguments=arguments,
        bus_port=bus_port,
    )
    try:
        server.start()
        yield server
    finally:
        server.kill()  # its data is not read again
        shutil.rmtree(folder, ignore_errors=True)
