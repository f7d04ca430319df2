"""Kills and moving slots under load on a cluster: nothing is lost, doubled or overtaken, and work goes on."""

from __future__ import annotations

import time
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
from tests.servers.redis_topologies import RedisCluster, redis_cluster

MANY = 4_000
KILLS = 8
LEASE = timedelta(seconds=4)
GOES_ON_WITHIN = 10.0


class Trouble:
    """What happens to the cluster, one after the other: the queue's slot moves, its master dies and comes back."""

    def __init__(self, cluster: RedisCluster) -> None:
        self._cluster = cluster
        self._slot = slot_of(keys.part(Q, "meta"))
        self.moves = self.kills = 0
        self.spans: list[tuple[int, int]] = []
        """When each began and ended, by CLOCK_MONOTONIC in nanoseconds."""

    def next(self) -> None:
        began = time.monotonic_ns()
        self._next()
        self.spans.append((began, time.monotonic_ns()))

    def _next(self) -> None:
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
    with redis_cluster() as cluster:
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
    times = [line[4] for line in lines_of(read_all(tmp_path, "worker"), "delivered")]
    for (_, ended), (next_began, _) in pairwise([*trouble.spans, (max(times), 0)]):
        went_on = min((at for at in times if at > ended), default=ended)
        # Trouble upon trouble: what follows shows whether work goes on.
        assert min(went_on, max(next_began, ended)) - ended < GOES_ON_WITHIN * 1e9
