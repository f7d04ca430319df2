"""Several Redis servers that belong together: the masters of a cluster, and a master with replica and sentinels."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from tests.servers.lasting import lasting
from tests.servers.processes import HOST, ServerDown, free_ports
from tests.servers.redis import Program, RedisServer, redis_server

SLOTS = 16_384
MASTER = "orders-master"
"""The name under which the sentinels know the master."""
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class RedisCluster:
    """Masters that share all slots, and the replicas of some of them."""

    masters: tuple[RedisServer, ...]
    replicas: tuple[RedisServer, ...] = ()

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(f'{HOST}:{server.port}' for server in self.masters[:2])}"

    def flush(self) -> None:
        """Forget everything."""
        for server in self.masters:
            server.flush()

    def node_id(self, server: RedisServer) -> str:
        return str(_ask(server, "CLUSTER", "MYID"))

    def server_of(self, slot: int) -> RedisServer:
        """Return the server that has a slot, by the word of the first that runs."""
        asked = next(server for server in (*self.masters, *self.replicas) if server.alive)
        for first, last, (_, port, *_), *_ in _ask(asked, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in (*self.masters, *self.replicas) if server.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def keys_of(self, server: RedisServer) -> set[str]:
        with server.client() as client:
            return {key.decode() for key in client.keys("*")}

    def move_slot(self, slot: int, target: RedisServer, *, pause: Callable[[], None] = lambda: None) -> int:
        """Move a slot with all its keys, as an operator would; `pause` runs between two keys. Return how many."""
        source = self.server_of(slot)
        _ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.node_id(source))
        _ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.node_id(target))
        moved = 0
        while names := _ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
            _ask(source, "MIGRATE", HOST, target.port, names[0], 0, 5_000)
            moved += 1
            pause()
        for server in (target, source, *self.masters):
            _ask(server, "CLUSTER", "SETSLOT", slot, "NODE", self.node_id(target))
        return moved


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
        _, port = _ask(asked, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER)
        return next(server for server in self.servers if server.port == int(port))

    @property
    def replica(self) -> RedisServer:
        master = self.master
        return next(server for server in self.servers if server is not master)

    def flush(self) -> None:
        self.master.flush()

    def await_sync(self) -> None:
        """Return when the master has a replica in step, and all sentinels know it and each other."""
        until(self._in_step, "the replica in step")

    def _in_step(self) -> bool:
        master = self.master
        if not all(server.alive for server in (*self.servers, *self.sentinels)):
            return False
        role = _ask(master, "ROLE")
        behind = [int(role[1]) - int(replica[2]) for replica in role[2]] if role[0] == b"master" else []
        if len(behind) != len(self.servers) - 1 or max(behind) > 100:
            return False
        for sentinel in self.sentinels:
            facts = _facts(sentinel)
            wanted = {"flags": "master", "num-other-sentinels": "2", "port": str(master.port)}
            wanted["num-slaves"] = str(len(behind))
            if any(facts.get(name) != value for name, value in wanted.items()):
                return False
        return True


def _facts(sentinel: RedisServer) -> dict[str, str]:
    found = [part.decode() for part in _ask(sentinel, "SENTINEL", "MASTER", MASTER)]
    return dict(zip(found[::2], found[1::2], strict=True))


def _ask(server: RedisServer, *words: Any) -> Any:
    with server.client(protocol=2) as client:
        client.response_callbacks.clear()
        answer = client.execute_command(*words)
        return answer.decode() if isinstance(answer, bytes) else answer


def until(condition: Callable[[], bool], what: str, *, seconds: float = SETTLE_SECONDS) -> None:
    """Return when a condition of servers holds."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(redis.RedisError, StopIteration):
            if condition():
                return
        if time.monotonic() > deadline:
            raise ServerDown(f"{what} did not come within {seconds:g} s")
        time.sleep(0.05)


@contextlib.contextmanager
def redis_cluster(program: Program = "redis", *, masters: int = 3, replicas: int = 0) -> Iterator[RedisCluster]:
    """Run a cluster of its own."""
    with contextlib.ExitStack() as stack:
        servers = tuple(stack.enter_context(_node(program)) for _ in range(masters + replicas))
        cluster = RedisCluster(masters=servers[:masters], replicas=servers[masters:])
        share = -(-SLOTS // masters)
        for number, server in enumerate(cluster.masters):
            _ask(server, "CLUSTER", "ADDSLOTSRANGE", number * share, min((number + 1) * share, SLOTS) - 1)
            _ask(server, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            _ask(server, "CLUSTER", "MEET", HOST, servers[0].port, servers[0].bus_port)
        until(lambda: all(_joined(server, len(servers)) for server in servers), "the cluster")
        for number, server in enumerate(cluster.replicas):
            _ask(server, "CLUSTER", "REPLICATE", cluster.node_id(cluster.masters[number % masters]))
        until(lambda: all(_joined(server, len(servers)) for server in servers), "the cluster's replicas")
        if replicas:
            until(lambda: all(_ask(server, "ROLE")[3] == b"connected" for server in cluster.replicas), "replication")
        yield cluster


def _joined(server: RedisServer, nodes: int) -> bool:
    facts = dict(line.split(":", 1) for line in _ask(server, "CLUSTER", "INFO").split("\r\n") if ":" in line)
    return facts["cluster_state"] == "ok" and int(facts["cluster_known_nodes"]) == nodes


@contextlib.contextmanager
def _node(program: Program) -> Iterator[RedisServer]:
    (bus_port,) = free_ports(1)
    lines = (
        "cluster-enabled yes", f"cluster-port {bus_port}", "cluster-node-timeout 2000",
        "repl-diskless-sync-delay 0", "cluster-allow-replica-migration no", "cluster-require-full-coverage no",
    )  # fmt: skip
    with redis_server(program, lines=lines, bus_port=bus_port) as server:
        yield server


@contextlib.contextmanager
def redis_sentinels(
    program: Program = "redis", *, replicas: int = 1, down_after_ms: int = 1_000
) -> Iterator[RedisSentinels]:
    """Run a master, replicas of it and three sentinels that agree by two."""
    lines = ("repl-diskless-sync-delay 0", "repl-ping-replica-period 1")
    with contextlib.ExitStack() as stack:
        master = stack.enter_context(redis_server(program, lines=lines))
        following = (*lines, f"replicaof {HOST} {master.port}")
        others = [stack.enter_context(redis_server(program, lines=following)) for _ in range(replicas)]
        sentinels = tuple(stack.enter_context(_sentinel(program, master, down_after_ms)) for _ in range(3))
        group = RedisSentinels(servers=(master, *others), sentinels=sentinels)
        group.await_sync()
        yield group


@contextlib.contextmanager
def _sentinel(program: Program, master: RedisServer, down_after_ms: int) -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="godwit-sentinel-"))
    (port,) = free_ports(1)
    settings = [
        f"bind {HOST}", f"port {port}", f"dir {folder}", f"sentinel monitor {MASTER} {HOST} {master.port} 2",
        f"sentinel down-after-milliseconds {MASTER} {down_after_ms}", f"sentinel failover-timeout {MASTER} 5000",
    ]  # fmt: skip
    (folder / "server.conf").write_text("\n".join([*settings, ""]))
    server = RedisServer(program=program, port=port, folder=folder, url="", arguments=("--sentinel",))
    try:
        server.start()
        yield server
    finally:
        server.kill()
        shutil.rmtree(folder, ignore_errors=True)


def shared_cluster() -> RedisCluster:
    """Return the cluster that all tests of this process share, as it is."""
    return lasting("redis-cluster", redis_cluster())


def fresh_cluster() -> RedisCluster:
    """Return the cluster that all tests of this process share, empty and running."""
    cluster = shared_cluster()
    for server in cluster.masters:
        if not server.alive:
            server.start()
    cluster.flush()
    return cluster


def fresh_sentinels() -> RedisSentinels:
    """Return the master, replica and sentinels that all tests of this process share, empty and running."""
    group = lasting("redis-sentinels", redis_sentinels())
    group.flush()
    return group
