"""Kills and moving slots under load on a cluster: nothing is lost, doubled or overtaken, and work goes on."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from godwit.brokers.redis import keys
from godwit.brokers.redis.topology import slot_of
from tests.conformance.harness import Q
from tests.faults.crew import Crew
from tests.faults.record import lines_of, read_all
from tests.faults.remote import remote
from tests.faults.storm import ORDERED, Storm
from tests.servers.redis_cluster import RedisCluster, redis_cluster

MANY = 3_000
KILLS = 8
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


@pytest.mark.timeout(200)
async def test_kills_and_moving_slots_lose_nothing(tmp_path: Path, crew: Crew) -> None:
    with redis_cluster(node_timeout_ms=1_000) as cluster:
        async with remote(cluster.url) as harness:
            await harness.declare(ORDERED)
            trouble = Trouble(cluster)
            storm = Storm(
                crew=crew,
                place=tmp_path,
                random=Random(8),
                count=MANY,
                url=cluster.url,
                lease=LEASE,
                broker_kill=trouble.next,
                broker_share=0.5,
                workers=3,
            )
            storm.begin()
            await storm.rage(KILLS)
            while trouble.moves < 2 or trouble.kills < 1:
                trouble.next()
            found = await storm.end(harness, within=timedelta(seconds=90))
            assert (await harness.stats()).dead == 0
    assert found.accepted == MANY
    found.verify()
    assert longest_gap_seconds(tmp_path) < GOES_ON_WITHIN


def longest_gap_seconds(place: Path) -> float:
    """Return the longest time in which nobody got anything, from the first message to the last."""
    times = sorted(line[4] for line in lines_of(read_all(place, "worker"), "delivered"))
    return max(later - earlier for earlier, later in pairwise(times)) / 1e9
