"""A full disk: publishes are refused as a whole, work goes on when there is room again, nothing accepted is lost."""

from __future__ import annotations

import asyncio
import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Ack, Broker, Delivery
from godwit.brokers.sqlite import SqliteBroker
from godwit.core.errors import StorageFull
from godwit.core.names import AckId
from godwit.core.queues import QueueSpec
from godwit.manager import MessageQueueManager
from tests.conformance.harness import LONG, G, Q
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import envelope, publish_until_refused
from tests.faults.reconciliation import DATABASE, consistent, ids, url_of
from tests.faults.record import lines_of, read_all
from tests.logs import capture_logs
from tests.waiting import eventually

DISK = "8m"
BALLAST = 2 << 20
ROOMY = "32m"
PAGES = 400
BATCH = 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Give a folder on a file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "godwit-test", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"mounting needs root ({mounted.stderr.strip()}); the page limit below shows the same")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def resize(disk: Path, size: str) -> None:
    """Give a mounted disk more room."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(disk)], check=True)


async def publish_until_full(broker: Broker, accepted: set[str], name: str) -> None:
    """Publish batch after batch until one is refused."""
    for first in range(0, 1_000_000, BATCH):
        batch = [envelope(name, number) for number in range(first, first + BATCH)]
        try:
            receipts = await broker.publish(batch)
        except StorageFull:
            return
        accepted.update(receipt.id for receipt in receipts)
    raise AssertionError("the disk never got full")


class Drain:
    """A worker that goes on where a full disk stopped it."""

    def __init__(self) -> None:
        self.done: set[str] = set()
        self._held: list[Delivery] = []

    async def run(self, broker: Broker) -> None:
        """Pull and ack until there is nothing left, or no room to do so."""
        with suppress(StorageFull):
            while True:
                self._held = self._held or await broker.pull(Q, G, worker="drain", limit=20, lease=LONG)
                if not self._held:
                    return
                assert await broker.settle([Ack(delivery.ack_id) for delivery in self._held]) == []
                self.done.update(delivery.message_id for delivery in self._held)
                self._held = []

    async def finish(self, broker: Broker, wanted: set[str]) -> None:
        """Go on until everything wanted is done: the log gives its room back once it is checkpointed."""

        async def finished() -> bool:
            await self.run(broker)
            return self.done >= wanted

        await eventually(finished, what="the rest of the work")


async def test_on_a_full_disk_publishes_are_refused_and_nothing_accepted_is_lost(small_disk: Path) -> None:
    accepted: set[str] = set()
    drain = Drain()
    async with SqliteBroker(small_disk / DATABASE) as broker:
        await broker.declare(QueueSpec(name=Q))
        await publish_until_full(broker, accepted, "first")
        await drain.run(broker)
        await publish_until_full(broker, accepted, "second")
        resize(small_disk, ROOMY)
        late = await broker.publish([envelope("late", number) for number in range(BATCH)])
        accepted.update(receipt.id for receipt in late)
        await drain.finish(broker, accepted)
    await reconciled(small_disk, accepted, drain.done)


async def test_a_little_room_is_enough_to_drain_a_full_disk(small_disk: Path) -> None:
    """The log must not take the room that came back: then the file could never take the log in."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"\0" * BALLAST)
    accepted: set[str] = set()
    drain = Drain()
    async with SqliteBroker(small_disk / DATABASE) as broker:
        await broker.declare(QueueSpec(name=Q))
        await publish_until_full(broker, accepted, "first")
        ballast.unlink()
        await drain.finish(broker, accepted)
    await reconciled(small_disk, accepted, drain.done)


async def test_at_the_page_limit_publishes_are_refused_and_nothing_accepted_is_lost(tmp_path: Path) -> None:
    accepted: set[str] = set()
    drain = Drain()
    async with SqliteBroker(tmp_path / DATABASE, max_pages=PAGES) as broker:
        await broker.declare(QueueSpec(name=Q))
        await publish_until_full(broker, accepted, "first")
        await drain.run(broker)
        await publish_until_full(broker, accepted, "second")
    async with SqliteBroker(tmp_path / DATABASE, max_pages=PAGES * 4) as broker:
        late = await broker.publish([envelope("late", number) for number in range(BATCH)])
        accepted.update(receipt.id for receipt in late)
        await drain.finish(broker, accepted)
    await reconciled(tmp_path, accepted, drain.done)


async def reconciled(place: Path, accepted: set[str], done: set[str]) -> None:
    rows = await consistent(place)
    assert len(accepted) > 1_000
    assert set(ids(rows, "enqueued")) == accepted, "a refused publish left something, or an accepted one did not"
    assert set(ids(rows, "acked")) == accepted == done


async def test_a_full_disk_under_load_from_several_processes_loses_nothing(
    small_disk: Path, children: ChildProcesses
) -> None:
    async with SqliteBroker(small_disk / DATABASE) as broker:
        await broker.declare(QueueSpec(name=Q))
    publishers = [
        children.start(publish_until_refused, url_of(small_disk), small_disk.parent / f"p{n}.publisher", name=f"p{n}")
        for n in range(2)
    ]
    await children.finished(*publishers)
    resize(small_disk, ROOMY)
    drain = Drain()
    accepted = {line[1] for line in lines_of(read_all(small_disk.parent, "publisher"), "accepted")}
    async with SqliteBroker(small_disk / DATABASE) as broker:
        await drain.finish(broker, accepted)
    await reconciled(small_disk, accepted, drain.done)


async def test_a_worker_on_a_full_disk_says_so_once_and_never_that_the_broker_answers_again(tmp_path: Path) -> None:
    renewals = 0

    class CountedBroker(SqliteBroker):
        def extend_now(self, ack_ids: Sequence[AckId], lease: timedelta) -> list[AckId]:
            nonlocal renewals
            renewals += 1
            return super().extend_now(ack_ids, lease)

    async with MessageQueueManager(CountedBroker(tmp_path / DATABASE, max_pages=PAGES)) as mq:
        mq.consumer(Q, lease=0.6)(lambda _: None)
        await mq.declare(Q, G)
        await publish_until_full(mq.broker, set(), "first")
        worker = mq.worker()
        with capture_logs() as lines:
            running = asyncio.create_task(worker.run())
            await eventually(lambda: renewals >= 5)
            worker.stop()
            worker.stop()  # without waiting for a disk that stays full
            await running
    warned = Counter(line["event"] for line in lines if line["log_level"] == "warning")
    assert max(warned.values()) == 1, warned
    assert "the broker answers again" not in {line["event"] for line in lines}
