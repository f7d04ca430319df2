"""A dead worker's messages run again soon, also in a long queue; a restart of the server is no worker's crash."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from godwit.brokers.contract import Ack
from godwit.core.messages.envelope import Envelope
from godwit.core.names import MessageId
from tests.conformance.harness import LONG, G, Q, Row
from tests.faults.child_processes import ChildProcesses
from tests.faults.publisher import BODY
from tests.faults.reconciliation import agreeing, drained, ids
from tests.faults.record import read
from tests.faults.remote_harness import RemoteHarness, remote
from tests.faults.worker import work
from tests.servers.redis import fresh, redis_server
from tests.steal_time import calm
from tests.waiting import eventually, real_time

BACKLOG = 100_000
LEASE = timedelta(seconds=3)
SOON = timedelta(seconds=2)
RESTARTS = 5
RESTART_LEASE = timedelta(seconds=4)
"""After a restart a lease lasts its length once more: a worker needs up to 0.75 s to come back and 0.1 s to settle."""


async def publish_many(harness: RemoteHarness, count: int) -> None:
    now = harness.now_ms
    for first in range(0, count, 2_000):
        envelopes = [
            Envelope(MessageId(f"m{number:06}"), Q, BODY, len(BODY), now) for number in range(first, first + 2_000)
        ]
        await harness.broker.publish(envelopes)


async def test_a_dead_workers_messages_run_again_within_lease_plus_2_s_behind_100_000(
    tmp_path: Path, children: ChildProcesses
) -> None:
    server = fresh()
    async with remote(server.url) as harness:
        await harness.declare()
        await publish_many(harness, BACKLOG)
        seen = tmp_path / "dead.worker"
        options = {"name": "dead", "stop": tmp_path / "stop", "lease": LEASE, "limit": 20, "longest": LONG}
        dead = children.start(work, server.url, seen, **options)
        await eventually(lambda: len(read(seen)) == 20, within=timedelta(seconds=30), what="deliveries")
        children.kill(dead)
        died = calm()
        held, again = {line[1] for line in read(seen)}, dict[str, float]()
        while held - set(again):
            for one in (found := await harness.pull(50, lease=LONG, worker="living")):
                again.setdefault(one.message_id, calm() - died)
            await harness.broker.settle([Ack(one.ack_id) for one in found])
            assert calm() - died < 60, "the dead worker's messages did not come back"
        depth = (await harness.stats()).depth
    assert depth > BACKLOG // 10, "the backlog was gone before: the test showed nothing"
    assert max(again[name] for name in held) <= (LEASE + SOON).total_seconds()


def told(rows: Sequence[Row], names: set[str]) -> str:
    """Return what happened to messages, for people."""
    fields = ("event", "at", "worker", "attempt", "crashes", "lease_until", "delivery_id")
    return "\n".join(
        f"{row['message_id']}: " + ", ".join(f"{field} {row[field]}" for field in fields if row.get(field) is not None)
        for row in rows
        if row.get("message_id") in names or row["event"] == "lease_moved"
    )


async def test_five_restarts_of_the_server_are_nobodys_crash(tmp_path: Path, children: ChildProcesses) -> None:
    folder, lease = tmp_path, RESTART_LEASE
    with redis_server() as server:
        async with remote(server.url) as harness:
            await harness.declare()
            await publish_many(harness, 4_000)
            stop = folder / "stop"
            workers = []
            for number in range(3):
                name = f"w{number}"
                options = {"name": name, "stop": stop, "lease": lease, "limit": 5, "longest": timedelta(seconds=0.1)}
                workers.append(children.start(work, server.url, folder / f"{name}.worker", **options))

            def settled() -> list[int]:
                store_services = [read(folder / f"w{number}.worker") for number in range(3)]
                return [sum(line[0] == "settled" for line in book) for book in store_services]

            for restart in range(RESTARTS):
                before = settled()
                # All of them: for one that had not come back yet, two outages would be one that outlasts its patience.
                await eventually(
                    lambda before=before: all(now > then for now, then in zip(settled(), before, strict=True)),
                    within=timedelta(seconds=30),
                    what=f"work of everybody after restart {restart}",
                )
                server.kill()
                await real_time(lease * 1.2)  # every lease that was open then is over now
                server.start()

            async def empty() -> bool:
                found = await harness.pull(200, lease=LONG, worker="helping")
                await harness.broker.settle([Ack(one.ack_id) for one in found])
                return drained(await harness.stats())

            await eventually(empty, within=timedelta(seconds=60), what="an empty queue")
            stop.touch()
            await children.finished(*workers)
            rows = await agreeing(harness)
            assert (await harness.stats(group=G)).dead == 0
    assert ids(rows, "dead_lettered") == []
    assert len(set(ids(rows, "acked"))) == 4_000
    crashed = {row["message_id"] for row in rows if row["event"] == "delivered" and row.get("crashes")}
    assert not crashed, told(rows, crashed)
