"""Promise 11: statistics cost the same at any depth, and every transition is in the journal."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import pytest

from godwit.brokers.contract import Ack, HandBack, Nack
from godwit.core.clock import milliseconds
from godwit.core.failures.failure import FailureKind
from godwit.core.names import AckId, GroupName
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness, Q, Row

pytestmark = pytest.mark.promise(11)

ROUNDING_MS: Final = 2


async def last(harness: Harness, *fields: str) -> tuple[Any, ...]:
    row = (await harness.rows())[-1]
    return (str(row["event"]), *(row[field] for field in fields))


async def test_stats_count_every_place_a_message_can_be_in(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, message_ordering=True))
    await harness.publish("a1", "a2", "a3", key="a")
    await harness.publish("later", due=LONG)
    await harness.publish("dead", "ready")
    for delivery in await harness.pull(2, lease=LONG):
        if delivery.message_id == "dead":
            await harness.give_up(delivery)
    stats = await harness.stats()
    assert (stats.ready, stats.blocked, stats.delayed, stats.leased, stats.dead) == (1, 2, 1, 1, 1)
    assert stats.depth == 5
    size = {name: harness.envelope(name, key="a").size for name in ("a1", "a2", "a3")}
    assert stats.leased_bytes == size["a1"]


async def test_stats_list_every_queue_and_group(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.declare(queue="empty")
    named = {stats.name: {group.name for group in stats.groups} for stats in await harness.broker.stats()}
    assert named == {"orders": {"billing", "mail"}, "empty": {"default"}}


async def test_stats_survive_a_restart(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", "b", "a")
    await harness.retry(await harness.pull_one(group="mail"), LONG)
    before = await harness.broker.stats()
    await harness.restart()
    assert await harness.broker.stats() == before


async def test_bytes_return_to_zero_when_everything_is_done(harness: Harness) -> None:
    await harness.declare()
    await harness.publish(*(f"m{n}" for n in range(20)))
    await harness.retry((await harness.pull(1))[0])
    await harness.ids()
    stats = await harness.stats()
    assert (stats.bytes, stats.leased_bytes, stats.depth) == (0, 0, 0)


async def test_declaring_is_in_the_journal(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    rows = await harness.rows()
    assert [(row["event"], row["group"]) for row in rows] == [
        ("queue_created", None),
        ("group_created", "billing"),
        ("group_created", "mail"),
    ]


async def test_publishing_writes_one_row_per_group_copy(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    sent = harness.envelope("a", key="k", priority=90)
    await harness.broker.publish([sent])
    rows = [row for row in await harness.rows() if row["event"] == "enqueued"]
    assert [(row["group"], row["copy"], row["copies"], row["depth"]) for row in rows] == [
        ("billing", 0, 2, 1),
        ("mail", 1, 2, 1),
    ]
    row = rows[0]
    assert (row["message_id"], row["publish_seq"], row["type"], row["priority"], row["lane"]) == (
        "a",
        1,
        "message",
        90,
        3,
    )
    assert (row["ordering_key"], row["size"], row["deliver_at"]) == ("k", sent.size, None)


async def test_an_addressed_message_is_one_copy_of_one(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a", group="mail")
    assert await last(harness, "group", "copy", "copies") == ("enqueued", "mail", 0, 1)


async def test_a_message_due_later_is_scheduled(harness: Harness) -> None:
    await harness.declare()
    sent = harness.envelope("a", due=LEASE, expires=LONG)
    await harness.broker.publish([sent])
    assert await last(harness, "ready_at", "deliver_at", "expires_at") == (
        "scheduled",
        sent.deliver_at_ms,
        sent.deliver_at_ms,
        sent.expires_at_ms,
    )


def lasted(harness: Harness, found_ms: int, moments: list[float]) -> bool:
    """Say whether a time in the journal is right: from between the first two moments to between the last two."""
    if harness.clock:
        return found_ms == milliseconds(LEASE)
    begun, began, ending, ended = (1_000 * moment for moment in moments)
    return ending - began - ROUNDING_MS <= found_ms <= ended - begun + ROUNDING_MS


async def test_delivering_and_acking_are_in_the_journal_with_their_times(harness: Harness) -> None:
    await harness.declare()
    moments = [time.monotonic()]
    await harness.publish("a")
    moments.append(time.monotonic())
    await harness.let_pass(LEASE)
    moments.append(time.monotonic())
    delivery = await harness.pull_one(worker="worker-7", lease=LONG)
    moments.append(time.monotonic())
    assert await last(harness, "message_id", "attempt", "failures", "crashes", "worker", "depth", "lease_until") == (
        "delivered", "a", 1, 0, 0, "worker-7", 1, delivery.lease_until_ms,
    )  # fmt: skip
    assert lasted(harness, (await last(harness, "wait_ms"))[1], moments)
    moments = moments[-2:]
    await harness.let_pass(LEASE)
    moments.append(time.monotonic())
    await harness.broker.settle([Ack(delivery.ack_id, result=b"{}")])
    moments.append(time.monotonic())
    assert await last(harness, "message_id", "worker", "depth", "result") == ("acked", "a", "worker-7", 0, b"{}")
    assert lasted(harness, (await last(harness, "run_ms"))[1], moments)


async def test_the_workers_own_run_time_wins(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.broker.settle([Ack((await harness.pull_one()).ack_id, run_ms=17)])
    assert await last(harness, "run_ms") == ("acked", 17)


async def test_a_retry_is_in_the_journal_with_its_error(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery, error = await harness.pull_one(), harness.error("no route to 10.0.0.1")
    await harness.broker.settle([Nack(delivery.ack_id, LONG, error)])
    assert await last(harness, "attempt", "failures", "crashes", "error_fingerprint", "depth") == (
        "nacked", 1, 1, 0, error.fingerprint, 1,
    )  # fmt: skip


async def test_hand_backs_expired_leases_and_extensions_are_in_the_journal(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.broker.settle([HandBack((await harness.pull_one(worker="one")).ack_id)])
    assert await last(harness, "attempt", "worker") == ("handed_back", 0, "one")
    delivery = await harness.pull_one(worker="two")
    await harness.broker.extend([delivery.ack_id], LEASE)
    assert await last(harness, "message_id") == ("extended", "a")
    await harness.let_pass(LEASE + MOMENT)
    assert await last(harness, "attempt", "crashes", "worker") == ("lease_expired", 1, 1, "two")


async def test_giving_up_is_in_the_journal_with_its_kind(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.give_up(await harness.pull_one(), FailureKind.PERMANENT, "bad address")
    assert await last(harness, "error_kind", "error_fingerprint", "failures", "depth") == (
        "dead_lettered", "permanent", harness.error("bad address").fingerprint, 1, 0,
    )  # fmt: skip


async def test_cancelling_purging_and_removing_are_in_the_journal(harness: Harness) -> None:
    await harness.declare("default", "mail")
    await harness.publish("a", "b", "c")
    await harness.broker.cancel(Q, harness.envelope("a").id)
    assert (await harness.events())[-2:] == ["cancelled", "cancelled"]
    await harness.broker.purge(Q, GroupName("mail"))
    fields = ("group", "count", "publish_seq_first", "publish_seq_last", "depth")
    assert await last(harness, *fields) == ("purged", "mail", 2, 2, 3, 0)
    await harness.broker.remove(Q, GroupName("default"))
    assert await last(harness, *fields[:4]) == ("group_removed", "default", 2, 2, 3)
    await harness.broker.remove(Q)
    assert await last(harness) == ("queue_removed",)


async def test_a_step_that_changes_nothing_writes_nothing(harness: Harness) -> None:
    await harness.declare()
    before = await harness.events()
    await harness.pull()
    await harness.broker.maintain()
    await harness.broker.purge(Q)
    await harness.broker.cancel(Q, harness.envelope("a").id)
    await harness.broker.settle([Ack(AckId("nonsense"))])
    assert await harness.events() == before


async def test_depth_is_that_of_the_group_after_the_step(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a", "b")
    one, two = await harness.pull(2)
    await harness.broker.settle([Ack(one.ack_id)])
    await harness.broker.settle([Nack(two.ack_id, LONG)])
    depths = [(str(row["event"]), row["depth"]) for row in await harness.rows() if "message_id" in row]
    assert depths == [("enqueued", 2), ("enqueued", 2), ("delivered", 2), ("delivered", 2), ("acked", 1), ("nacked", 1)]


async def test_the_journal_of_many_clients_at_once_is_dense_and_in_time_order(harness: Harness) -> None:
    await harness.declare()
    brokers = [harness.broker, await harness.another()]

    async def live(n: int) -> None:
        broker = brokers[n % 2]
        await broker.publish([harness.envelope(f"m{n}")])
        for delivery in await broker.pull(Q, G, worker=f"w{n}", limit=2, lease=LONG):
            await broker.settle([Ack(delivery.ack_id)])

    await asyncio.gather(*(live(n) for n in range(20)))
    rows: list[Row] = await harness.rows()
    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert [row["at"] for row in rows] == sorted(row["at"] for row in rows)
