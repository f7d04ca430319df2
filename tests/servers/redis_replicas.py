"""Redis servers with replicas: a master and its replica alone, or watched by three sentinels."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import HOST, free_ports
from tests.servers.redis import Program, RedisServer, redis_server
from tests.servers.redis_topologies import ask, on_free_ports, running, until
from tests.servers.session_servers import lasting

MASTER = "orders-master"
"""The name under which the sentinels know the master."""
DOWN_AFTER_MS = 2_000
"""Sentinels ping once a second: with one second a new master was taken for dead before its first answer came."""
FAILOVER_TIMEOUT_MS = 2_000
"""A vote that no sentinel wins is repeated after twice this time."""
UNDER_LOAD = 10_000_000
"""Bytes that a replica may be behind when there is a lot to do."""
NEVER_MS = 60_000
"""For a master that is not killed: a machine that is busy is no reason to name another."""


@dataclass(frozen=True, kw_only=True)
class RedisSentinels:
    """A master with its replicas, watched by three sentinels."""

    servers: tuple[RedisServer, ...]
    sentinels: tuple[RedisServer, ...]

    @property
    def url(self) -> str:
        return f"redis+sentinel://{','.join(f'{HOST}:{server.port}' for server in self.sentinels)}/{MASTER}"

    @property
    def master(self) -> RedisServer:
        """The master by the word of the first sentinel that runs."""
        asked = next(server for server in self.sentinels if server.alive)
        _, port = ask(asked, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if server.port == int(port))

    def await_heir(self, dead: RedisServer) -> int:
        """Return the moment, in nanoseconds of CLOCK_MONOTONIC, at which the first sentinel names another master."""

        def named() -> bool:
            addresses = (ask(one, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER) for one in self.sentinels)
            return any(int(port) != dead.port for _, port in addresses)

        until(named, "another master")
        return time.monotonic_ns()

    @property
    def replica(self) -> RedisServer:
        master = self.master
        return next(server for server in self.servers if server is not master)

    def flush(self) -> None:
        self.master.flush()

    def await_sync(self, *, most_behind: int = 100) -> None:
        """Return when the master has all replicas in step, and all sentinels know them and each other.

        Under load a replica is always some bytes behind, by its own word of once a second.
        """
        until(lambda: self._in_step(most_behind), "the replica in step")

    def fail_over(self, *, follows: bool) -> RedisServer:
        """Kill the master and start it again when the sentinels name another; return it.

        When it `follows`, it starts as a replica of the new one. Else it takes itself for the master until the
        sentinels tell it, which they do after about ten seconds.
        """
        dead = self.master
        dead.kill()
        until(lambda: self.master is not dead, "another master")
        if follows:
            with (dead.folder / "server.conf").open("a") as settings:
                settings.write(f"replicaof {HOST} {self.master.port}\n")
        dead.start()
        return dead

    def _in_step(self, most_behind: int) -> bool:
        master = self.master
        if not all(server.alive for server in (*self.servers, *self.sentinels)):
            return False
        role = ask(master, "ROLE")
        behind = [int(role[1]) - int(replica[2]) for replica in role[2]] if role[0] == b"master" else []
        if len(behind) != len(self.servers) - 1 or max(behind) > most_behind:
            return False
        wanted = {"flags": "master", "num-other-sentinels": "2", "port": str(master.port)}
        wanted["num-slaves"] = str(len(behind))
        following = {"flags": "slave", "master-link-status": "ok", "master-port": str(master.port)}
        for sentinel in self.sentinels:
            replicas = ask(sentinel, "SENTINEL", "REPLICAS", MASTER)
            if not wanted.items() <= _facts(ask(sentinel, "SENTINEL", "MASTER", MASTER)).items():
                return False
            if not all(following.items() <= _facts(replica).items() for replica in replicas):
                return False
        return True


def _facts(words: Sequence[bytes]) -> dict[str, str]:
    found = [word.decode() for word in words]
    return dict(zip(found[::2], found[1::2], strict=True))


@contextlib.contextmanager
def redis_sentinels(
    program: Program = "redis",
    *,
    replicas: int = 1,
    down_after_ms: int = DOWN_AFTER_MS,
    replica_lines: Sequence[Sequence[str]] = (),
) -> Iterator[RedisSentinels]:
    """Run a master, replicas of it and three sentinels that agree by two, and that know all of them from their files.

    `replica_lines` are further lines in the configuration of each replica.
    """
    lines = ("repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(redis_server(program, lines=lines))
        following = (*lines, f"replicaof {HOST} {master.port}")
        others = [
            stack.enter_context(redis_server(program, lines=(*following, *more)))
            for more in replica_lines or [()] * replicas
        ]
        settings = [
            f"sentinel monitor {MASTER} {HOST} {master.port} 2",
            f"sentinel down-after-milliseconds {MASTER} {down_after_ms}",
            f"sentinel failover-timeout {MASTER} {FAILOVER_TIMEOUT_MS}",
            *(f"sentinel known-replica {MASTER} {HOST} {other.port}" for other in others),
        ]

        def begin(stack: contextlib.ExitStack) -> tuple[RedisServer, ...]:
            ports = free_ports(3)
            return tuple(stack.enter_context(_sentinel(program, port, ports, settings)) for port in ports)

        sentinels = on_free_ports(stack, begin)
        group = RedisSentinels(servers=(master, *others), sentinels=sentinels)
        group.await_sync()
        yield group


@contextlib.contextmanager
def _sentinel(program: Program, port: int, ports: Sequence[int], settings: Sequence[str]) -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="godwit-sentinel-"))
    own = [
        f"bind {HOST}", f"port {port}", f"dir {folder}", f"sentinel myid {port:040x}", *settings,
        *(f"sentinel known-sentinel {MASTER} {HOST} {other} {other:040x}" for other in ports if other != port),
    ]  # fmt: skip
    with running(program, port, folder, own, arguments=("--sentinel",)) as server:
        yield server


@dataclass(frozen=True, kw_only=True)
class RedisPair:
    """A master and its replica, without sentinels."""

    master: RedisServer
    replica: RedisServer

    def await_replica(self) -> None:
        """Return when the replica has what is written now."""
        with self.master.client(single_connection_client=True) as client:

            def has_it() -> bool:
                client.delete("anything")  # WAIT is about what its own connection wrote
                return bool(client.wait(1, 500) == 1)

            until(has_it, "a replica in step")


@contextlib.contextmanager
def redis_pair(program: Program) -> Iterator[RedisPair]:
    """Run a master and its replica."""
    lines = ("repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
    with (
        redis_server(program, lines=lines) as master,
        redis_server(program, lines=(*lines, f"replicaof {HOST} {master.port}")) as replica,
    ):
        yield RedisPair(master=master, replica=replica)


def fresh_pair(program: Program) -> RedisPair:
    """Return the master and replica that all tests of this process share, empty, running and in step."""
    pair = lasting(f"{program}-pair", redis_pair(program))
    if not pair.replica.alive:
        pair.replica.start()
    pair.master.flush()
    pair.await_replica()
    return pair


def fresh_sentinels() -> RedisSentinels:
    """Return the master, replica and sentinels that all tests of this process share, empty and running."""
    group = lasting("redis-sentinels", redis_sentinels(down_after_ms=NEVER_MS))
    group.flush()
    return group
