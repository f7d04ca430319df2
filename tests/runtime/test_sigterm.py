"""SIGTERM at every moment of a worker's life: it ends by itself, loses nothing and burns no attempt."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.contract import Delivery
from godwit.cli.exits import Exit
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import QueueSpec
from godwit.runtime.worker.heartbeat import InstanceStatus
from godwit.sqlite_writer.file_lock import FileLock
from tests.runtime.workers import ORDERS, STARTED, Shop, catches_sigterm
from tests.stolen import calm
from tests.waiting import eventually

WORKSHOP = "tests.runtime.workshop:mq"
LETTERS = QueueName("letters")
PARCELS = QueueName("parcels")


async def terminated(process: subprocess.Popen[bytes], *, within: float) -> None:
    """Send SIGTERM and see the process end well in time."""
    process.send_signal(signal.SIGTERM)
    await eventually(lambda: process.poll() is not None, within=timedelta(seconds=within), what="the worker's end")
    assert process.returncode == 0


async def is_active(shop: Shop) -> bool:
    return (await shop.states())[InstanceStatus.ACTIVE] > 0


async def waiting_in(shop: Shop, queue: QueueName) -> list[Delivery]:
    """Take what waits in a queue, to look at its counters."""
    group = GroupName("default")
    return await shop.broker.pull(queue, group, worker="test", limit=100, lease=timedelta(seconds=60))


def unburnt(deliveries: list[Delivery]) -> bool:
    """Say whether nothing but this delivery was counted."""
    return all((one.attempt, one.failures, one.crashes) == (1, 0, 0) for one in deliveries)


def with_grace(tmp_path: Path, seconds: float) -> str:
    file = tmp_path / "godwit.toml"
    file.write_text(f"[consumer]\nshutdown_grace = {int(seconds * 1000)}")
    return str(file)


async def test_while_the_application_is_imported(shop: Shop) -> None:
    await shop.publish("work")
    with shop.worker(target=WORKSHOP, SHOP_IMPORT_SECONDS="30") as process:
        process.send_signal(signal.SIGTERM)
        await eventually(lambda: process.poll() is not None, within=STARTED)
        assert process.returncode in {0, -signal.SIGTERM}
    assert unburnt(await waiting_in(shop, ORDERS))


async def test_while_it_waits_for_a_broker_that_is_not_there(shop: Shop, tmp_path: Path) -> None:
    missing = f"sqlite:///{tmp_path}/nowhere/shop.db"
    with shop.worker("--wait-for-broker", "60s", target=WORKSHOP, GODWIT_URL=missing, SHOP_RECORD="/dev/null") as one:
        await eventually(lambda: catches_sigterm(one.pid), within=STARTED)
        await terminated(one, within=5)


async def test_while_it_waits_for_messages(shop: Shop) -> None:
    with shop.worker(target=WORKSHOP) as process:
        await eventually(lambda: is_active(shop), within=STARTED)
        await terminated(process, within=3)
    assert (await shop.states())[InstanceStatus.ACTIVE] == 0


async def test_while_it_pulls_under_load_again_and_again(shop: Shop) -> None:
    await shop.publish(*["work"] * 2_000)
    ended = 0
    for _ in range(4):
        with shop.worker(target=WORKSHOP) as process:
            ended += 50
            await eventually(lambda goal=ended: len(shop.recorded("end")) >= goal, within=STARTED)
            await terminated(process, within=10)
        ended = len(shop.recorded("end"))
    left = await waiting_in(shop, ORDERS)
    assert (await shop.group()).leased == len(left)
    assert unburnt(left), "a clean stop burns no attempt"
    assert max(Counter(shop.recorded("end")).values()) == 1, "and repeats nothing"
    assert len(shop.recorded("begin")) == len(shop.recorded("end"))


@pytest.mark.parametrize("queue", [ORDERS, LETTERS, PARCELS])
async def test_while_handlers_run_that_end_within_the_grace_time(shop: Shop, queue: QueueName) -> None:
    await shop.broker.declare(QueueSpec(name=queue))
    await shop.publish("work", "work", "work", queue=queue)
    with shop.worker(target=WORKSHOP, seconds=0.5) as process:
        await eventually(lambda: len(shop.recorded("begin")) == 3, within=STARTED)
        await terminated(process, within=10)
    assert sorted(shop.recorded("end")) == ["o0", "o1", "o2"]
    assert await shop.is_empty(queue)


@pytest.mark.parametrize("queue", [ORDERS, LETTERS, PARCELS])
async def test_while_handlers_run_that_do_not_end_within_the_grace_time(
    shop: Shop, tmp_path: Path, queue: QueueName
) -> None:
    await shop.broker.declare(QueueSpec(name=queue))
    await shop.publish("work", "work", queue=queue)
    with shop.worker(target=WORKSHOP, seconds=120, SHOP_CONFIG=with_grace(tmp_path, 0.3)) as process:
        await eventually(lambda: len(shop.recorded("begin")) == 2, within=STARTED)
        since = calm()
        await terminated(process, within=10)
        assert calm() - since < 10
    found = await waiting_in(shop, queue)
    assert len(found) == 2
    assert unburnt(found)


async def test_while_a_batch_is_being_collected(shop: Shop) -> None:
    await shop.broker.declare(QueueSpec(name=PARCELS))
    await shop.publish("work", "work", "work", queue=PARCELS)
    with shop.worker(target=WORKSHOP) as process:

        async def collecting() -> bool:
            return (await shop.group(PARCELS)).leased == 3

        await eventually(collecting, within=STARTED)
        assert shop.recorded("begin") == []
        await terminated(process, within=15)
    done, left = Counter(shop.recorded("end")), await waiting_in(shop, PARCELS)
    assert sorted([*done, *(one.message_id for one in left)]) == ["o0", "o1", "o2"]
    assert set(done.values()) <= {1}
    assert unburnt(left)


async def test_while_settlements_wait_for_the_broker_that_comes_back(shop: Shop, tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "shop.db.lock")
    await shop.publish("work")
    with shop.worker(target=WORKSHOP, seconds=0.5) as process:
        await eventually(lambda: shop.recorded("begin") == ["o0"], within=STARTED)
        lock.acquire()
        try:
            await eventually(lambda: shop.recorded("end") == ["o0"])
            process.send_signal(signal.SIGTERM)
        finally:
            lock.release()
        await eventually(lambda: process.poll() is not None, within=timedelta(seconds=15))
        assert process.returncode == 0
    assert await shop.is_empty()
    assert shop.recorded("begin") == ["o0"]


async def test_while_settlements_wait_for_a_broker_that_stays_away(shop: Shop, tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "shop.db.lock")
    await shop.publish("work")
    with shop.worker(target=WORKSHOP, seconds=0.5, SHOP_CONFIG=with_grace(tmp_path, 0.3)) as process:
        await eventually(lambda: shop.recorded("begin") == ["o0"], within=STARTED)
        lock.acquire()
        try:
            await eventually(lambda: shop.recorded("end") == ["o0"])
            process.send_signal(signal.SIGTERM)
            await eventually(lambda: process.poll() is not None, within=timedelta(seconds=25))
            assert process.returncode == Exit.UNAVAILABLE
        finally:
            lock.release()
    with shop.worker(target=WORKSHOP):
        await eventually(shop.is_empty, within=STARTED)
    assert shop.recorded("end") in (["o0"], ["o0", "o0"]), "handled again at most, lost never"
