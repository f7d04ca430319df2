"""kill -9 of workers, publishers and of redis-server itself: nothing confirmed is lost, and order is kept."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Literal

import pytest

from tests.conformance.harness import LONG
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import publish_and_die
from tests.faults.random_kills import ORDERED, RandomKills
from tests.faults.record import read
from tests.faults.remote_harness import remote
from tests.servers.redis import fresh, redis_server

MANY = 20_000
KILLS = 24
LEASE = timedelta(seconds=2)
LONE_PUBLISHERS = 200
AT_ONCE = 6


@pytest.mark.timeout(600)
@pytest.mark.parametrize("appendfsync", ["everysec", "always"])
async def test_kills_of_everybody_and_the_server_over_20_000_messages_lose_nothing(
    tmp_path: Path, children: ChildProcesses, appendfsync: Literal["everysec", "always"]
) -> None:
    with redis_server(appendfsync=appendfsync) as server:
        async with remote(server.url) as harness:
            await harness.declare(ORDERED)
            chaos = RandomKills(
                children=children,
                place=tmp_path,
                random=Random(11),
                count=MANY,
                url=server.url,
                lease=LEASE,
                broker_kill=server.crash,
            )
            chaos.begin()
            await chaos.run(KILLS)
            if not chaos.broker_kills:
                server.crash()
                chaos.broker_kills += 1
            found = await chaos.end(harness, within=timedelta(seconds=120))
    assert chaos.kills >= KILLS // 2
    assert chaos.broker_kills > 0
    assert found.accepted == MANY
    assert found.held > 0, "the killed workers held nothing: the test showed nothing"
    found.verify()


async def test_an_id_returned_to_a_publisher_that_dies_at_once_is_delivered(
    tmp_path: Path, children: ChildProcesses
) -> None:
    server = fresh()
    async with remote(server.url) as harness:
        await harness.declare()
        nursery = children.start(
            publish_and_die, server.url, tmp_path / "accepted", times=LONE_PUBLISHERS, at_once=AT_ONCE
        )
        await children.finished(nursery, within=timedelta(seconds=100))
        accepted = {line[1] for line in read(tmp_path / "accepted")}
        assert len(accepted) == LONE_PUBLISHERS
        delivered: list[str] = []
        while found := await harness.ids(lease=LONG):
            delivered += found
        assert sorted(delivered) == sorted(accepted)
