"""A Redis Cluster: masters that share the slots, and replicas of some of them."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.servers.processes import HOST, free_ports
from tests.servers.redis import Program, RedisServer
from tests.servers.redis_topologies import ask, on_free_ports, running, until
from tests.servers.session_servers import lasting

SLOTS = 16_384


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
        return str(ask(server, "CLUSTER", "MYID"))

    def server_of(self, slot: int) -> RedisServer:
        """Return the server that has a slot, by the word of the first that runs."""
        asked = next(server for server in (*self.masters, *self.replicas) if server.alive)
        for first, last, (_, port, *_), *_ in ask(asked, "CLUSTER", "SLOTS"):
            if first <= slot <= last:
                return next(server for server in (*self.masters, *self.replicas) if server.port == port)
        raise AssertionError(f"nobody has slot {slot}")

    def keys_of(self, server: RedisServer) -> set[str]:
        with server.client() as client:
            return {key.decode() for key in client.keys("*")}

    def move_slot(self, slot: int, target: RedisServer, *, pause: Callable[[], None] = lambda: None) -> int:
        """Move a slot with all its keys, as an operator would; `pause` runs between two keys. Return how many."""
        source = self.server_of(slot)
        ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", self.node_id(source))
        ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", self.node_id(target))
        moved = 0
        while names := ask(source, "CLUSTER", "GETKEYSINSLOT", slot, 1):
            ask(source, "MIGRATE", HOST, target.port, names[0], 0, 5_000)
            moved += 1
            pause()
        for server in (target, source, *self.masters):
            ask(server, "CLUSTER", "SETSLOT", slot, "NODE", self.node_id(target))
        return moved


@contextlib.contextmanager
def redis_cluster(
    program: Program = "redis", *, masters: int = 3, replicas: int = 0, node_timeout_ms: int = 2_000
) -> Iterator[RedisCluster]:
    """Run a cluster of its own; its nodes know each other from the files they start with."""

    def begin(stack: contextlib.ExitStack) -> list[RedisServer]:
        ports = free_ports(2 * (masters + replicas))
        places = list(zip(ports[::2], ports[1::2], strict=True))
        return [
            stack.enter_context(_node(program, port, bus_port, _nodes(places, masters, number), node_timeout_ms))
            for number, (port, bus_port) in enumerate(places)
        ]

    with contextlib.ExitStack() as stack:
        servers = on_free_ports(stack, begin)
        cluster = RedisCluster(masters=tuple(servers[:masters]), replicas=tuple(servers[masters:]))
        until(lambda: all(_joined(server, len(servers)) for server in servers), "the cluster")
        if replicas:
            until(lambda: all(ask(server, "ROLE")[3] == b"connected" for server in cluster.replicas), "replication")
        yield cluster


def _nodes(places: Sequence[tuple[int, int]], masters: int, myself: int) -> str:
    """Return the file in which a node keeps what it knows of its cluster."""
    share, lines = -(-SLOTS // masters), []
    for number, (port, bus_port) in enumerate(places):
        flags = "myself," if number == myself else ""
        known = f"{number:040x} {HOST}:{port}@{bus_port} {flags}"
        if number < masters:
            slots = f"{number * share}-{min((number + 1) * share, SLOTS) - 1}"
            lines.append(f"{known}master - 0 0 {number + 1} connected {slots}")
        else:
            lines.append(f"{known}slave {(number - masters) % masters:040x} 0 0 0 connected")
    return "\n".join([*lines, f"vars currentEpoch {masters} lastVoteEpoch 0", ""])


def _joined(server: RedisServer, nodes: int) -> bool:
    facts = dict(line.split(":", 1) for line in ask(server, "CLUSTER", "INFO").split("\r\n") if ":" in line)
    linked: int = ask(server, "CLUSTER", "NODES").count(" connected")
    return facts["cluster_state"] == "ok" and linked == nodes


@contextlib.contextmanager
def _node(program: Program, port: int, bus_port: int, nodes: str, timeout_ms: int) -> Iterator[RedisServer]:
    folder = Path(tempfile.mkdtemp(prefix="godwit-node-"))
    settings = [
        f"bind {HOST}", f"port {port}", f"dir {folder}", 'save ""', "appendonly yes", "appendfsync everysec",
        "cluster-enabled yes", f"cluster-port {bus_port}", "cluster-config-file nodes.conf",
        f"cluster-node-timeout {timeout_ms}", "repl-diskless-sync-delay 0",
        "cluster-allow-replica-migration no", "cluster-require-full-coverage no",
    ]  # fmt: skip
    (folder / "nodes.conf").write_text(nodes)
    with running(program, port, folder, settings, bus_port=bus_port) as server:
        yield server


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
