"""The journals of a queue's partitions are recorded side by side: what one of them tells does not touch the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, GiveUp
from godwit.brokers.redis import RedisBroker
from godwit.core.failures.failure import FailureKind
from godwit.core.journal.projection import Projection
from godwit.core.journal.shards import SPAN
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.runtime.recorder.recorder import Recorder
from tests.conformance.harness import LONG, G, Q
from tests.servers.redis import fresh
from tests.store.conformance.harness import BACKENDS, StoreHarness, harness_of
from tests.store.recorder.test_projection import STATE_OF, journal_rows
from tests.store.tables import rows

THREE = QueueSpec(name=Q, partitions=3)
SECOND = GroupSpec(name="second")


async def same(harness: StoreHarness, broker: RedisBroker) -> set[int]:
    """Compare the tables with the journal; return the partitions that have open copies."""
    projection = Projection()
    for row in await journal_rows(broker):
        projection.apply(row)
    kept = await rows(harness.url, "SELECT * FROM queue_deliveries")
    told = {
        (row["queue_name"], row["consumer_group"], row["publish_seq"]): (row["message_id"], STATE_OF[row["status"]])
        for row in kept
    }
    assert told == {address: (copy.message_id, copy.state) for address, copy in projection.copies.items()}
    letters = await rows(harness.url, "SELECT * FROM dead_letters")
    assert len(letters) == sum(copy.state == "dead" for copy in projection.copies.values())
    return {seq // SPAN for _, _, seq in told}


@pytest.mark.parametrize("backend", BACKENDS)
async def test_purges_and_removals_are_told_by_each_partition_for_itself(backend: str, tmp_path: Path) -> None:
    with harness_of(backend, tmp_path) as harness:
        async with RedisBroker(fresh().url) as broker, harness.open() as store:
            recorder = Recorder(broker.journal, store.messages, batch_rows=20)
            await broker.declare(THREE, [GroupSpec(name=G), SECOND])
            await broker.publish([seal(Message(queue=Q, id=f"a{number}")) for number in range(60)])
            found = await broker.pull(Q, G, worker="w", limit=20, lease=LONG)
            await broker.settle([Ack(one.ack_id) for one in found[:5]])
            await broker.settle([GiveUp(one.ack_id, FailureKind.PERMANENT) for one in found[5:10]])
            await recorder.catch_up()
            assert await same(harness, broker) == {0, 1, 2}
            await broker.purge(Q, G)
            await broker.publish([seal(Message(queue=Q, id=f"b{number}")) for number in range(30)])
            await broker.remove(Q, "second")
            await recorder.catch_up()
            assert await same(harness, broker) == {0, 1, 2}
            await broker.declare(QueueSpec(name=Q, partitions=5))
            await broker.publish([seal(Message(queue=Q, id=f"c{number}")) for number in range(60)])
            await recorder.catch_up()
            assert await same(harness, broker) == {0, 1, 2, 3, 4}
            await broker.remove(Q)
            await recorder.catch_up()
            assert await same(harness, broker) == set()
            assert await rows(harness.url, "SELECT * FROM message_queues") == []
