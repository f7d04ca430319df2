"""A worker that is stopped for longer than its lease: another gets its message, and its late word changes nothing."""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Ack
from godwit.core.clock import milliseconds
from tests.conformance.harness import LONG, Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.reconciliation import agreeing, ids, url_of
from tests.faults.record import read
from tests.faults.worker import hold_one
from tests.waiting import eventually

LEASE = timedelta(milliseconds=500)


async def test_a_stopped_workers_message_goes_to_another_and_its_late_ack_changes_nothing(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare()
    await file.publish("a")
    seen, go_on = tmp_path / "seen", tmp_path / "go on"
    stopped = children.start(hold_one, url_of(tmp_path), seen, name="stopped", lease=LEASE, go_on=go_on)
    await eventually(lambda: len(read(seen)) == 1, what="the delivery")
    children.signal(stopped, signal.SIGSTOP)
    go_on.touch()

    delivery = await file.pull_one(lease=LONG, wait=timedelta(seconds=10), worker="other")
    assert (delivery.message_id, delivery.attempt, delivery.crashes) == ("a", 2, 1)
    given = {row["worker"]: row for row in await file.rows() if row["event"] == "delivered"}
    assert given["other"]["at"] - given["stopped"]["at"] >= milliseconds(LEASE), "the lease did not hold"
    before = await file.stats(), (await file.broker.journal.snapshot(delivery.queue)).copies

    children.signal(stopped, signal.SIGCONT)
    await children.finished(stopped)
    assert [line[0] for line in read(seen)] == ["delivered", "refused"]
    assert (await file.stats(), (await file.broker.journal.snapshot(delivery.queue)).copies) == before
    assert await file.broker.settle([Ack(delivery.ack_id)]) == []
    rows = await agreeing(file)
    assert ids(rows, "acked") == ["a"]
    assert [row["event"] for row in rows].count("ack_refused") == 1


async def test_a_stopped_worker_that_comes_back_before_anybody_looked_settles_late(
    tmp_path: Path, children: ChildProcesses, file: Harness
) -> None:
    await file.declare()
    await file.publish("a")
    seen, go_on = tmp_path / "seen", tmp_path / "go on"
    stopped = children.start(
        hold_one, url_of(tmp_path), seen, name="stopped", lease=timedelta(milliseconds=1), go_on=go_on
    )
    await eventually(lambda: len(read(seen)) == 1, what="the delivery")
    go_on.touch()
    await children.finished(stopped)
    assert [line[0] for line in read(seen)] == ["delivered", "settled"]
    assert (await file.stats()).depth == 0
