"""Two of the specification's three failure scenarios by their names; the third is in test_cluster.py."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Ack
from tests.conformance.harness import LONG, Harness
from tests.faults.child_processes import ChildProcesses
from tests.faults.record import read
from tests.faults.worker import hold_one
from tests.waiting import eventually

PATIENT = timedelta(seconds=20)


async def test_worker_crashes_mid_processing(rabbit: Harness, tmp_path: Path, children: ChildProcesses) -> None:
    """The message was not acknowledged, another worker picks it up, and what was already sent is skipped."""
    await rabbit.declare()
    url = rabbit._backend._url  # type: ignore[attr-defined]
    await rabbit.publish("birthday-7")
    record = tmp_path / "victim"
    victim = children.start(hold_one, url, record, name="victim", lease=LONG, go_on=tmp_path / "never")
    await eventually(lambda: len(read(record)) == 1, within=PATIENT, what="the victim at work")
    sent = {read(record)[0][1]}  # the victim had its effect and dies before it can say so
    children.kill(victim)
    again = await rabbit.pull_one(wait=PATIENT, worker="another")
    assert (again.message_id, again.attempt, again.crashes) == ("birthday-7", 2, 1)
    if again.message_id not in sent:
        sent.add(again.message_id)
    assert await rabbit.broker.settle([Ack(again.ack_id)]) == []
    assert sent == {"birthday-7"}
    assert (await rabbit.stats()).depth == 0
    assert [row["worker"] for row in await rabbit.rows() if row["event"] == "lease_expired"] == ["victim"]


async def test_three_crashes_isolate_a_message_as_poison(
    rabbit: Harness, tmp_path: Path, children: ChildProcesses
) -> None:
    await rabbit.declare()
    url = rabbit._backend._url  # type: ignore[attr-defined]
    await rabbit.publish("bad")
    for number in range(3):
        record = tmp_path / f"victim{number}"
        victim = children.start(hold_one, url, record, name=f"v{number}", lease=LONG, go_on=tmp_path / "never")
        await eventually(lambda record=record: len(read(record)) == 1, within=PATIENT, what="a victim at work")
        children.kill(victim)
    await rabbit.publish("good")
    assert await rabbit.ids(wait=PATIENT) == ["good"]
    (letter,) = await rabbit.letters()
    assert (letter.envelope.id, letter.kind, letter.crashes) == ("bad", "poison", 3)


async def test_scheduler_runs_twice(rabbit: Harness) -> None:
    """The second run publishes the same messages again; no user gets two."""
    await rabbit.declare()
    due = [f"birthday-{user}" for user in range(40)]
    first = await rabbit.publish(*due)
    second = await rabbit.publish(*due)
    assert [receipt.fresh for receipt in first + second] == [True] * 40 + [False] * 40
    assert await rabbit.ids(100) == due
    assert await rabbit.ids(100) == []
    stats = await rabbit.queue_stats()
    assert (stats.published, stats.duplicates) == (40, 40)


async def test_what_a_dead_worker_had_only_been_sent_ahead_is_not_its_crash(
    rabbit: Harness, tmp_path: Path, children: ChildProcesses
) -> None:
    await rabbit.declare()
    url = rabbit._backend._url  # type: ignore[attr-defined]
    await rabbit.publish("held", "ahead1", "ahead2")
    record = tmp_path / "victim"
    victim = children.start(hold_one, url, record, name="victim", lease=LONG, go_on=tmp_path / "never")
    await eventually(lambda: len(read(record)) == 1, within=PATIENT, what="the victim at work")
    children.kill(victim)
    seen: dict[str, tuple[int, int]] = {}

    async def everything() -> bool:
        for one in await rabbit.pull(5, wait=timedelta(milliseconds=200), lease=LONG):
            seen[one.message_id] = (one.attempt, one.crashes)
        return len(seen) == 3

    await eventually(everything, within=PATIENT, what="all three")
    assert seen == {"held": (2, 1), "ahead1": (1, 0), "ahead2": (1, 0)}
