from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from godwit.brokers.contract import Delivery
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.errors import BodiesMissing, InvalidCondition, InvalidSetting, QueueNotFound
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, JournalBody, QueueSpec
from godwit.pipeline.jobs.replay import ReplayResult, ReplaySettings, check_settings, replay_in_session
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.journals import LEASE, traffic, url_of
from tests.pipeline.test_condition import HOSTILE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Past:
    """A file with a history, from which a test replays."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder, self.path = spark, folder, folder / "godwit.db"

    def replay(self, condition: str, **settings: Any) -> ReplayResult:
        wanted = ReplaySettings(
            broker_url=url_of(self.path),
            store_url=url_of(self.path),
            lake=str(self.folder / "lake"),
            condition=condition,
            **settings,
        )
        with Connections(wanted.broker_url, wanted.store_url) as connections:
            return replay_in_session(self.spark, connections, wanted, check_settings(wanted))

    def waiting(self, queue: str, group: str) -> list[Delivery]:
        async def look() -> list[Delivery]:
            async with SqliteBroker(self.path) as broker:
                return await broker.pull(queue, group, worker="w", limit=1_000, lease=LEASE)

        return asyncio.run(look())

    def dead(self, queue: str, group: str) -> set[str]:
        async def look() -> set[str]:
            async with SqliteBroker(self.path) as broker:
                return {one.envelope.id for one in await broker.dead_letters.page(queue, group=group, limit=1_000)}

        return asyncio.run(look())


@pytest.fixture
def past(spark: SparkSession, tmp_path: Path) -> Past:
    return Past(spark, tmp_path)


def test_exactly_what_the_condition_chooses_arrives_once(past: Past) -> None:
    traffic(past.path, messages=60)
    chosen = past.dead("orders", "billing")
    assert len(chosen) > 5
    condition = 'event == "dead_lettered" && group == "billing"'
    dry = past.replay(condition, dry_run=True)
    assert (dry.chosen, dry.sent) == (len(chosen), False)
    for _ in range(2):  # the second under the same id sends nothing
        done = past.replay(condition, replay_id="again-1")
        assert (done.chosen, done.sent) == (len(chosen), True)
    arrived = past.waiting("orders", "billing")
    assert {one.open().replay_of for one in arrived} == chosen
    assert len(arrived) == len(chosen)
    assert {one.open().payload["n"] for one in arrived} == {int(name.rpartition("-")[2]) for name in chosen}
    assert past.waiting("orders", "mail") == []


def test_a_replay_into_another_queue_is_spread_over_time(past: Past) -> None:
    traffic(past.path, messages=30)

    async def declare() -> None:
        async with SqliteBroker(past.path) as broker:
            await broker.declare(QueueSpec(name="second"), [GroupSpec(name="all")])

    asyncio.run(declare())
    result = past.replay('event == "enqueued"', queue="second", per_second=1)  # of two groups
    assert (result.chosen, result.seconds) == (30, 30)

    async def delayed() -> int:
        async with SqliteBroker(past.path) as broker:
            stats = next(queue for queue in await broker.stats() if queue.name == "second")
            return stats.groups[0].delayed

    assert asyncio.run(delayed()) > 20
    with pytest.raises(QueueNotFound):
        past.replay('event == "enqueued"', queue="nowhere")


def test_messages_without_bodies_are_refused_before_anything_is_sent(past: Past) -> None:
    async def publish() -> None:
        async with SqliteBroker(past.path) as broker:
            await broker.declare(QueueSpec(name="bare", journal_body=JournalBody.OFF), [GroupSpec(name="g")])
            await broker.publish(seal_all([Message(id=f"b{number}", queue="bare") for number in range(4)]))

    asyncio.run(publish())
    with pytest.raises(BodiesMissing) as caught:
        past.replay('queue == "bare"')
    assert (caught.value.missing, caught.value.chosen) == (4, 4)
    assert len(past.waiting("bare", "g")) == 4


@pytest.mark.parametrize("condition", HOSTILE)
def test_a_hostile_condition_is_refused_before_anything_starts(condition: str, tmp_path: Path) -> None:
    settings = ReplaySettings(broker_url="memory://", store_url=None, lake=str(tmp_path), condition=condition)
    with pytest.raises(InvalidCondition):
        check_settings(settings)


def test_a_rate_of_nothing_is_refused(tmp_path: Path) -> None:
    settings = ReplaySettings(
        broker_url="memory://", store_url=None, lake=str(tmp_path), condition='queue == "a"', per_second=0
    )
    with pytest.raises(InvalidSetting):
        check_settings(settings)
