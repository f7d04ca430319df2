"""Kills under load on a cluster whose slots move, and on a master that fails over: nothing is lost, work goes on."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

from godwit.brokers.redis.client.topology import slot_of
from godwit.brokers.redis.layout import keys
from tests.conformance.harness import Q
from tests.faults.child_processes import ChildProcesses
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.record import lines_of, read_all
from tests.faults.remote_harness import remote
from tests.servers.redis_cluster import RedisCluster, redis_cluster
from tests.servers.redis_replicas import UNDER_LOAD, RedisSentinels, redis_sentinels
from tests.servers.redis_topologies import until
from tests.steal_time import pause
from tests.waiting import eventually

MANY = 4_000
SOME = 4_000
MUCH = 200
KILLS = 8
MOMENT_NS = 500_000_000
FORGOTTEN_NS = 2_000_000_000
"""How long before the death of its master an ack may be that no replica has."""
LEASE = timedelta(seconds=2)
GOES_ON_WITHIN = 10.0


class Trouble:
    """What happens to the cluster, one after the other: the queue's slot moves, its master dies and comes back."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._slot = slot_of(keys.part(Q, "meta"))
        self.moves = self.kills = 0

    def next(self) -> None:
        if self.moves > 2 * self.kills:
            server = self._cluster.server_of(self._slot)
            server.kill()
            server.start()
            self.kills += 1
            return
        source = self._cluster.server_of(self._slot)
        others = [server for server in self._cluster.masters if server is not source]
        assert self._cluster.move_slot(self._slot, others[self.moves % 2]) > 0
        self.moves += 1


async def test_kills_and_moving_slots_lose_nothing(tmp_path: Path, children: ChildProcesses) -> None:
    with redis_cluster(node_timeout_ms=1_000) as cluster:
        async with remote(cluster.url) as harness:
            await harness.declare(ORDERED)
            trouble = Trouble(cluster)
            chaos = RandomKills(
                children=children,
                place=tmp_path,
                random=Random(8),
                count=MANY,
                url=cluster.url,
                lease=LEASE,
                broker_kill=trouble.next,
                broker_share=0.5,
                workers=3,
            )
            chaos.begin()
            await chaos.run(KILLS)
            while trouble.moves < 2 or trouble.kills < 1:
                trouble.next()
            found = await chaos.end(harness, within=timedelta(seconds=90))
            assert (await harness.stats()).dead == 0
    assert found.accepted == MANY
    found.verify()
    assert longest_gap_seconds(tmp_path) < GOES_ON_WITHIN


class Failovers:
    """Kills of the master, each when work goes on and both replicas are in step: of two at once more may be lost."""

    def __init__(self, group: RedisSentinels, place: Path) -> None:
        self._group, self._place = group, place
        self.kills: list[int] = []
        """When, by CLOCK_MONOTONIC in nanoseconds."""
        self.loaded: list[bool] = []
        """Whether a good part of the messages was not yet published then."""

    def next(self) -> None:
        until(lambda: None not in self.pauses() or not self.much_is_left(), "work after a failover")
        self._group.await_sync(most_behind=UNDER_LOAD)
        self.loaded.append(self.much_is_left())
        self.kills.append(time.monotonic_ns())
        self._group.fail_over(follows=True)

    def much_is_left(self) -> bool:
        return self.accepted() < SOME - MUCH

    def accepted(self) -> int:
        return sum(1 for _ in lines_of(read_all(self._place, "publisher"), "accepted"))

    def pauses(self) -> list[float | None]:
        """Return the seconds from each kill to the next delivery; None when there was none yet."""
        times = sorted(line[4] for line in lines_of(read_all(self._place, "worker"), "delivered"))
        # What was on its way is written down for a moment more.
        after = [next((at for at in times if at > kill + MOMENT_NS), None) for kill in self.kills]
        return [None if at is None else pause(kill, at) for at, kill in zip(after, self.kills, strict=True)]


async def test_kills_and_failovers_lose_nothing_that_all_replicas_had(tmp_path: Path, children: ChildProcesses) -> None:
    with redis_sentinels(replicas=2) as group:
        async with remote(group.url) as harness:
            await harness.declare(ORDERED, min_replicas=2)
            failovers = Failovers(group, tmp_path)
            chaos = RandomKills(
                children=children,
                place=tmp_path,
                random=Random(3),
                count=SOME,
                url=group.url,
                lease=LEASE,
                broker_kill=failovers.next,
                broker_share=0.4,
                workers=3,
            )
            chaos.begin()
            await eventually(lambda: failovers.accepted() > SOME // 5, within=timedelta(seconds=60), what="a beginning")
            failovers.next()
            await chaos.run(KILLS)
            while len(failovers.kills) < 2:
                failovers.next()
            found = await chaos.end(harness, within=timedelta(seconds=90))
            assert (await harness.stats()).dead == 0
    assert found.accepted == SOME
    assert found.done >= SOME
    assert (found.lost, found.out_of_order) == (0, 0), found
    assert unexplained(tmp_path, chaos.victims, failovers.kills) == []
    assert failovers.loaded[0], "all was published before the first failover: the test showed nothing"
    for paused, loaded in zip(failovers.pauses(), failovers.loaded, strict=True):
        assert not loaded or (paused is not None and paused < GOES_ON_WITHIN), failovers.pauses()


def unexplained(place: Path, victims: set[str], kills: Sequence[int]) -> list[str]:
    """Return the messages that were delivered again although no worker died over them and no failover forgot their ack.

    Acks are not waited for: those of the last moments before a master's death may not have reached a replica.
    """
    deliveries, excuses = Counter[str](), Counter[str]()
    for worker, lines in read_all(place, "worker").items():
        deliveries.update(line[1] for line in lines if line[0] == "delivered")
        ends = {(line[1], line[2]): line for line in lines if line[0] != "delivered"}
        for line in lines:
            if line[0] != "delivered":
                continue
            end = ends.get((line[1], line[2]))
            forgotten = end is None and worker in victims
            if end is not None:
                forgotten = end[0] != "settled" or any(-FORGOTTEN_NS < end[4] - kill < FORGOTTEN_NS for kill in kills)
            excuses[line[1]] += forgotten
    return [name for name, count in deliveries.items() if count - 1 > excuses[name]]


def longest_gap_seconds(place: Path) -> float:
    """Return the longest time in which no worker got anything, from the first message to the last."""
    times: list[int] = sorted(line[4] for line in lines_of(read_all(place, "worker"), "delivered"))
    return max(pause(earlier, later) for earlier, later in pairwise(times))
