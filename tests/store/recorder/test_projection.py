"""What the recorder writes equals a replay of the journal, however the journal is cut into batches."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from godwit.brokers.contract import Broker
from godwit.brokers.memory import MemoryBroker
from godwit.core.clock import ManualClock
from godwit.core.journal.chunks import decode_chunk, rows_of
from godwit.core.journal.projection import Projection
from godwit.core.journal.shards import Position
from godwit.core.journal.statuses import Status
from godwit.core.journal.vocabulary import Event
from godwit.runtime.recorder.recorder import READER, Recorder
from godwit.telemetry.metrics import QueueMetricsCollector
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of
from tests.store.recorder.random_histories import Life, Oracle
from tests.store.tables import rows

STATE_OF = {"pending": "waiting", "scheduled": "waiting", "processing": "leased", "failed": "dead", "expired": "dead"}
COPY_FIELDS = ("status", "attempt", "failures", "crashes", "delivery_id", "lease_until", "ready_at", "worker")


async def journal_rows(broker: Broker) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for shard in await broker.journal.shards():
        for chunk in await broker.journal.read(shard, limit=1_000_000):
            found += rows_of(decode_chunk(chunk), shard)
    return found


def published_once(told: list[dict[str, Any]]) -> set[str]:
    places: dict[str, set[tuple[str, int]]] = {}
    for row in told:
        if row["event"] in (Event.ENQUEUED, Event.SCHEDULED):
            places.setdefault(row["message_id"], set()).add((row["queue"], row["publish_seq"]))
    return {message_id for message_id, found in places.items() if len(found) == 1}


async def check(harness: StoreHarness, told: list[dict[str, Any]]) -> None:
    """Compare every table with an oracle that reads one row after the other."""
    oracle, projection = Oracle(), Projection()
    for row in told:
        oracle.apply(row)
        projection.apply(row)
    kept = await rows(harness.url, "SELECT * FROM queue_deliveries")
    by_address = {(row["queue_name"], row["consumer_group"], row["publish_seq"]): row for row in kept}
    assert {
        address: {field: row[field] for field in COPY_FIELDS} | {"id": row["message_id"]}
        for address, row in by_address.items()
    } == oracle.copies
    assert {address: (row["message_id"], STATE_OF[row["status"]]) for address, row in by_address.items()} == {
        address: (copy.message_id, copy.state) for address, copy in projection.copies.items()
    }
    messages = await rows(harness.url, "SELECT * FROM queue_messages")
    assert {row["message_id"]: row["status"] for row in messages} == oracle.open_messages
    ended = await rows(harness.url, "SELECT * FROM queue_deliveries_history")
    assert sorted(
        ((row["queue_name"], row["consumer_group"], row["publish_seq"]), row["message_id"], row["status"])
        for row in ended
    ) == sorted(oracle.ended)
    finished = await rows(harness.url, "SELECT * FROM queue_messages_history")
    # Two lives of one id may be one row or two, as they fall into batches; a message published once has one row.
    once = published_once(told)
    assert sorted((row["message_id"], row["status"]) for row in finished if row["message_id"] in once) == sorted(
        end for end in oracle.finished if end[0] in once
    )
    known = {row["message_id"] for row in (*messages, *finished)}
    assert known == {row["message_id"] for row in told if row["event"] in (Event.ENQUEUED, Event.SCHEDULED)}
    letters = await rows(harness.url, "SELECT * FROM dead_letters")
    assert {(row["queue_name"], row["consumer_group"], row["publish_seq"]) for row in letters} == {
        address for address, copy in oracle.copies.items() if copy["status"] in (Status.FAILED, Status.EXPIRED)
    }


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("seed", range(8))
async def test_the_tables_equal_a_replay_of_the_journal(backend: str, seed: int, tmp_path: Path) -> None:
    clock, random = ManualClock(), Random(seed)
    broker = MemoryBroker(clock=clock)
    life = Life(broker, clock, seed)
    await life.begin()
    with harness_of(backend, tmp_path) as harness:
        async with harness.open() as store:
            recorder = Recorder(broker.journal, store.messages, batch_rows=random.choice([10, 40, 10_000]), clock=clock)
            for _ in range(6):
                await life.live(random.choice([5, 30]))
                await recorder.catch_up()
            await check(harness, await journal_rows(broker))


async def test_lag_and_rate_are_told_as_metrics(tmp_path: Path) -> None:
    clock = ManualClock()
    async with MemoryBroker(clock=clock) as broker:
        life = Life(broker, clock, seed=1)
        await life.begin()
        with harness_of("sqlite", tmp_path) as harness:
            async with harness.open() as store:
                metrics = QueueMetricsCollector()
                recorder = Recorder(broker.journal, store.messages, batch_rows=10, metrics=metrics, clock=clock)
                await life.live(60)
                await recorder.tick()
                assert recorder.lag.rows > 0
                clock.advance(timedelta(seconds=30))
                await recorder.tick()
                assert recorder.lag.seconds >= 30
                assert f"godwit_recorder_lag_rows {recorder.lag.rows}" in metrics.render()
                await recorder.catch_up()
                assert (recorder.lag.rows, recorder.lag.seconds) == (0, 0.0)
                assert f"godwit_recorder_transitions_total {recorder.recorded}" in metrics.render()


@pytest.mark.parametrize("backend", BACKENDS)
async def test_a_journal_that_was_lost_is_replaced_by_a_list_of_what_is_there(backend: str, tmp_path: Path) -> None:
    """Once by trimming past the recorder, once by another broker in the place of the first."""
    clock = ManualClock()
    with harness_of(backend, tmp_path) as harness:
        async with harness.open() as store:
            metrics = QueueMetricsCollector()
            for seed in (4, 5):
                async with MemoryBroker(clock=clock) as broker:
                    life = Life(broker, clock, seed)
                    await life.begin()
                    recorder = Recorder(broker.journal, store.messages, metrics=metrics, clock=clock)
                    await life.live(40)
                    await recorder.catch_up()
                    await same_as_broker(harness, broker)
                    await life.live(40)
                    for shard, ends in (await broker.journal.shards()).items():
                        await broker.journal.commit(READER, shard, Position(ends.epoch, ends.last_seq))
                    clock.advance(timedelta(days=2))
                    assert await broker.journal.trim() > 0
                    await life.live(20)
                    await recorder.catch_up()
                    await same_as_broker(harness, broker)
            assert "godwit_recorder_lost_total" in metrics.render()


async def same_as_broker(harness: StoreHarness, broker: MemoryBroker) -> None:
    """Compare the open copies with what the broker itself lists."""
    there: dict[tuple[str, str, int], tuple[str, str, int]] = {}
    for shard in await broker.journal.shards():
        snapshot = await broker.journal.snapshot(shard.rpartition("#")[0])
        there |= {copy.address: (copy.message_id, copy.state, copy.attempt) for copy in snapshot.copies}
    kept = await rows(harness.url, "SELECT * FROM queue_deliveries")
    assert {
        (row["queue_name"], row["consumer_group"], row["publish_seq"]): (
            row["message_id"], STATE_OF[row["status"]], row["attempt"]
        )
        for row in kept
    } == there  # fmt: skip
    messages = {row["message_id"] for row in await rows(harness.url, "SELECT message_id FROM queue_messages")}
    assert messages == {message_id for message_id, _, _ in there.values()}
