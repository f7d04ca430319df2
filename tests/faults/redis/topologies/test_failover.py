"""Failovers while publishing: what is lost without `min_replicas`, and that nothing confirmed is with it.

What was confirmed and delivered is written to files by the publishers and workers themselves, synced line by line.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from godwit.brokers.redis import RedisBroker
from godwit.brokers.redis.client import script_runner
from godwit.brokers.redis.client.topology import slot_of
from godwit.core.errors import NotReplicated
from godwit.core.messages.envelope import Envelope
from godwit.core.names import MessageId, QueueName
from godwit.core.queues import GroupSpec, QueueSpec
from tests.conformance.harness import LONG, G, Q
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import publish_steadily
from tests.faults.record import Record, lines_of, read, read_all
from tests.faults.remote_harness import remote
from tests.faults.worker import work
from tests.servers.redis_cluster import redis_cluster
from tests.servers.redis_replicas import UNDER_LOAD, redis_sentinels
from tests.servers.redis_topologies import until
from tests.steal_time import calm, pause
from tests.waiting import eventually

GOES_ON_WITHIN = 10.0
KNOWS_WITHIN = 2.0
"""How long after the first sentinel a client may find out; half a second, were the machine not busy."""
LARGE = b"x" * 20_000
"""Large enough that a few hundred do not fit into the buffers between a master and a replica that is stuck."""


def gap_seconds(moments: list[int], since: int) -> float:
    """Return the longest time after `since`, in nanoseconds as all of them, in which nothing happened."""
    counted = [since, *sorted(moment for moment in moments if moment > since)]
    return max(pause(earlier, later) for earlier, later in pairwise(counted))


async def test_publishers_and_workers_go_on_after_a_failover_and_nothing_confirmed_is_lost(
    tmp_path: Path, children: ChildProcesses
) -> None:
    """With `min_replicas` = all replicas, and a dead master that comes back as a replica: fewer promise less."""
    with redis_sentinels(replicas=2) as group:
        async with remote(group.url) as harness:
            await harness.broker.declare(QueueSpec(name=Q, min_replicas=2), [GroupSpec(name=G, message_ordering=True)])
            stop, end = tmp_path / "stop", tmp_path / "end"
            steady = {"stop": stop, "batch": 10, "pause": timedelta(milliseconds=10)}
            publishers = [
                children.start(publish_steadily, group.url, tmp_path / f"{name}.publisher", name=name, **steady)
                for name in ("p0", "p1")
            ]
            for name in ("w0", "w1"):
                options = {"name": name, "stop": end, "lease": timedelta(seconds=5), "limit": 10}
                children.start(work, group.url, tmp_path / f"{name}.worker", **options)

            def accepted() -> list[str]:
                return [line[1] for line in lines_of(read_all(tmp_path, "publisher"), "accepted")]

            await eventually(lambda: len(accepted()) > 300, within=timedelta(seconds=30), what="messages")
            group.await_sync(most_behind=UNDER_LOAD)
            killed = time.monotonic_ns()
            group.fail_over(follows=True)
            before = len(accepted())
            await eventually(lambda: len(accepted()) > before + 500, within=timedelta(seconds=30), what="messages")
            stop.touch()
            await children.finished(*publishers)

            async def empty() -> bool:
                return (await harness.stats()).depth == 0

            await eventually(empty, within=timedelta(seconds=60), what="an empty queue")
            end.touch()
            await children.finished(*children.members)
            assert (await harness.stats()).dead == 0, "somebody was called poison"
            print(*(server.log for server in (*group.sentinels, *group.servers)))  # shown when it fails
    worked = read_all(tmp_path, "worker")
    delivered = {line[1] for line in lines_of(worked, "delivered")}
    assert set(accepted()) - delivered == set()
    published = lines_of(read_all(tmp_path, "publisher"), "accepted")
    assert gap_seconds([line[4] for line in lines_of(worked, "delivered")], killed) < GOES_ON_WITHIN
    assert gap_seconds([line[2] for line in published], killed) < GOES_ON_WITHIN


async def publish_until_unsure(
    broker: RedisBroker, queue: str, record: Path, first: int, last: int
) -> NotReplicated | None:
    """Publish large messages, writing down each that is confirmed; return the error of the first one that is not."""
    seen = Record(record)
    for number in range(first, last):
        envelope = Envelope(MessageId(f"m{number}"), queue, LARGE, len(LARGE), 0)
        try:
            await broker.publish([envelope])
        except NotReplicated as error:
            return error
        seen.write(("accepted", envelope.id))
    return None


async def test_what_a_failover_loses_was_confirmed_without_min_replicas_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two queues on the same servers, whose replica is stuck for a while: one waits for it, the other does not."""
    monkeypatch.setattr(script_runner, "REPLICAS_MS", 1_000)
    careful, quick = QueueName("careful"), QueueName("quick")
    with redis_sentinels() as group:
        async with RedisBroker(group.url) as broker:
            await broker.declare(QueueSpec(name=careful, min_replicas=1))
            await broker.declare(QueueSpec(name=quick))
            for queue in (careful, quick):
                assert await publish_until_unsure(broker, queue, tmp_path / queue, 0, 100) is None
            group.await_sync()
            master, replica = group.master, group.replica
            os.kill(replica.pid, signal.SIGSTOP)
            refused = await publish_until_unsure(broker, careful, tmp_path / careful, 100, 700)
            assert await publish_until_unsure(broker, quick, tmp_path / quick, 100, 700) is None
            master.kill()
            os.kill(replica.pid, signal.SIGCONT)
            heir = asyncio.create_task(asyncio.to_thread(group.await_heir, master))
            await broker.stats()
            went_on = time.monotonic_ns()
            added = (went_on - await heir) / 1e9
            lost, accepted = {}, {}
            for queue in (careful, quick):
                delivered = await drained(broker, queue)
                accepted[queue] = {line[1] for line in read(tmp_path / queue)}
                lost[queue] = accepted[queue] - delivered
                print(f"{queue}: {len(accepted[queue])} confirmed, {len(lost[queue])} lost")  # shown by pytest -s
    print(f"{added:.2f} s after the first sentinel knew")
    assert added < KNOWS_WITHIN
    assert refused is not None
    assert "0 of 1 replicas" in refused.fact
    assert "may or may not survive" in refused.fact
    assert (len(accepted[careful]), lost[careful]) == (100, set())
    assert len(accepted[quick]) == 700
    assert len(lost[quick]) > 0, "nothing was lost: the test showed nothing"


async def drained(broker: RedisBroker, queue: QueueName) -> set[str]:
    """Take everything out of a queue; return the ids."""
    delivered: set[str] = set()

    async def empty() -> bool:
        found = await broker.pull(queue, G, worker="w", limit=50, lease=LONG)
        delivered.update(one.message_id for one in found)
        return not found

    await eventually(empty, within=timedelta(seconds=60), what="an empty queue")
    return delivered


async def test_one_replica_of_two_is_not_enough_when_the_other_is_promoted() -> None:
    # The sentinels choose the one with the highest priority, whatever it lacks.
    with redis_sentinels(replica_lines=[("replica-priority 1",), ()]) as group:
        async with RedisBroker(group.url) as broker:
            await broker.declare(QueueSpec(name=Q, min_replicas=1))
            group.await_sync()
            master, replica = group.servers[:2]
            os.kill(replica.pid, signal.SIGSTOP)
            for number in range(600):
                await broker.publish([Envelope(MessageId(f"m{number}"), Q, LARGE, len(LARGE), 0)])
            master.kill()
            os.kill(replica.pid, signal.SIGCONT)
            until(lambda: group.master is not master, "another master")
            assert group.master is replica
            assert (await broker.stats())[0].groups[0].depth < 600


async def test_who_was_idle_asks_the_sentinels_before_talking_to_a_master_that_came_back() -> None:
    with redis_sentinels() as group:
        async with RedisBroker(group.url) as broker, RedisBroker(group.url) as witness:
            await broker.declare(QueueSpec(name=Q))
            await broker.publish([Envelope(MessageId("before"), Q, b"null", 4, 0)])
            (delivery,) = await broker.pull(Q, G, worker="w", limit=1, lease=LONG)
            group.await_sync()
            back = group.fail_over(follows=False)
            with back.client() as client:
                assert client.info("replication")["role"] == "master", "the test shows nothing"
            assert await asyncio.to_thread(broker.extend_now, [delivery.ack_id], LONG) == []
            await broker.publish([Envelope(MessageId("after"), Q, b"null", 4, 0)])
            with back.client() as client, group.master.client() as other:
                lane = "godwit:{orders}:l1:default"
                assert (client.xlen(lane), other.xlen(lane)) == (1, 2)
            assert (await witness.stats())[0].groups[0].depth == 2


async def test_a_frozen_master_does_not_hold_its_callers_when_another_has_taken_over() -> None:
    with redis_sentinels() as group:
        async with RedisBroker(group.url) as broker:
            await broker.declare(QueueSpec(name=Q))
            group.await_sync()
            frozen = group.master
            os.kill(frozen.pid, signal.SIGSTOP)
            began = calm()
            # One goes over the connection that is there, the others need new ones.
            sent = [broker.publish([Envelope(MessageId(f"m{number}"), Q, b"null", 4, 0)]) for number in range(3)]
            receipts = [receipt for (receipt,) in await asyncio.gather(*sent)]
            took = calm() - began
            assert [receipt.fresh for receipt in receipts] == [True] * 3
            assert group.master is not frozen
            delivery, *_ = await broker.pull(Q, G, worker="w", limit=5, lease=LONG)
            assert await asyncio.to_thread(broker.extend_now, [delivery.ack_id], LONG) == []
            os.kill(frozen.pid, signal.SIGCONT)
    assert took < GOES_ON_WITHIN


async def test_a_replica_in_a_cluster_takes_over() -> None:
    with redis_cluster(replicas=1, node_timeout_ms=1_000) as cluster:
        name = next(name for name in map("queue{}".format, range(100)) if slot_of(name) < 5_000)
        master = cluster.masters[0]
        async with RedisBroker(cluster.url) as broker:
            await broker.declare(QueueSpec(name=name, min_replicas=1))
            await broker.publish([Envelope(MessageId(f"m{n}"), name, b"null", 4, 0) for n in range(50)])
            (first,) = await broker.pull(name, G, worker="w", limit=1, lease=LONG)
            master.kill()
            began = calm()
            found = await broker.pull(name, G, worker="w", limit=100, lease=LONG)
            took = calm() - began
            assert cluster.server_of(slot_of(name)) is cluster.replicas[0]
            assert {one.message_id for one in found} | {first.message_id} >= {f"m{n}" for n in range(50)}
            assert await asyncio.to_thread(broker.extend_now, [one.ack_id for one in found], LONG) == []
    assert took < GOES_ON_WITHIN
