"""Two hundred consumers in four groups: every group gets everything, over a handful of connections."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Ack
from godwit.brokers.urls import connect
from godwit.core.names import GroupName
from tests.conformance.harness import LONG, Q
from tests.faults.child_processes import ChildProcesses
from tests.faults.record import Record, raised, read
from tests.faults.remote_harness import remote
from tests.servers.redis import fresh
from tests.waiting import eventually

GROUPS = ("billing", "mail", "search", "audit")
CONSUMERS = 50
MESSAGES = 2_000
CALL_CONNECTIONS = 10
MOST_CONNECTIONS = CALL_CONNECTIONS + 2
"""Of one process: those for calls, one that waits, one that renews leases from a thread."""


def consume(url: str, record: Path, *, group: str, stop: Path) -> None:
    """Let fifty consumers of one group pull until the file `stop` exists; each writes down what it did."""
    asyncio.run(_consume(url, Record(record), group, stop))


async def _consume(url: str, record: Record, group: str, stop: Path) -> None:
    async with connect(url, redis_connections=CALL_CONNECTIONS) as broker:

        async def one(number: int) -> None:
            worker = f"{group}-{number}"
            while not raised(stop):
                wait = timedelta(milliseconds=500)
                found = await broker.pull(Q, GroupName(group), worker=worker, limit=5, lease=LONG, wait=wait)
                if found:
                    refused = await broker.settle([Ack(delivery.ack_id) for delivery in found])
                    assert refused == []
                    record.write(*((worker, delivery.message_id) for delivery in found))

        await asyncio.gather(*(one(number) for number in range(CONSUMERS)))


async def test_200_consumers_in_4_groups_share_few_connections(tmp_path: Path, children: ChildProcesses) -> None:
    server = fresh()
    async with remote(server.url) as harness:
        await harness.declare(*GROUPS)
        with server.client() as client:
            before = len(client.client_list())
            stop = tmp_path / "stop"
            for group in GROUPS:
                children.start(consume, server.url, tmp_path / group, group=group, stop=stop)
            for first in range(0, MESSAGES, 100):
                await harness.publish(*(f"m{number}" for number in range(first, first + 100)))

            def everything() -> bool:
                return all(len(read(tmp_path / group)) >= MESSAGES for group in GROUPS)

            await eventually(everything, within=timedelta(seconds=60), what="all deliveries")
            connections = len(client.client_list()) - before
        stop.touch()
        await children.finished(*children.members)
    assert connections <= len(GROUPS) * MOST_CONNECTIONS
    for group in GROUPS:
        lines = read(tmp_path / group)
        assert sorted(line[1] for line in lines) == sorted(f"m{number}" for number in range(MESSAGES))
        assert len({line[0] for line in lines}) > CONSUMERS // 2, "most of the consumers had nothing to do"
