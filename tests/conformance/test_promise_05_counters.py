"""Promise 5: deliveries, failures and crashes are counted apart; handing back and outages count as nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.brokers.contract import Ack, HandBack, Nack, Postpone
from godwit.core.clock import from_ms
from godwit.core.failures.failure import HISTORY_LENGTH, FailureKind
from godwit.core.failures.retry import Backoff
from godwit.core.queues import GroupSpec
from tests.conformance.harness import LEASE, LONG, MOMENT, G, Harness

pytestmark = pytest.mark.promise(5)


async def counters(harness: Harness) -> tuple[int, int, int]:
    delivery = await harness.pull_one()
    return delivery.attempt, delivery.failures, delivery.crashes


async def test_a_first_delivery_is_attempt_one_without_failures_or_crashes(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    assert await counters(harness) == (1, 0, 0)


async def test_a_retry_counts_as_a_failure(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one())
    assert await counters(harness) == (2, 1, 0)


async def test_a_lease_that_runs_out_counts_as_a_crash(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    assert await counters(harness) == (2, 0, 1)


async def test_handing_back_counts_as_nothing(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_delivery_attempts=2, max_crashes=1))
    await harness.publish("a")
    for _ in range(5):
        delivery = await harness.pull_one()
        assert (delivery.attempt, delivery.failures, delivery.crashes) == (1, 0, 0)
        assert await harness.broker.settle([HandBack(delivery.ack_id)]) == []
    assert await harness.letters() == []


async def test_postponing_counts_as_a_delivery_but_neither_as_a_failure_nor_as_a_crash(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one())
    for postponements in range(4):
        delivery = await harness.pull_one()
        assert (delivery.attempt, delivery.failures, delivery.crashes) == (postponements + 2, 1, 0)
        assert delivery.postponements == postponements
        assert await harness.broker.settle([Postpone(delivery.ack_id)]) == []


async def test_no_limit_of_attempts_and_no_backoff_counts_postponements(harness: Harness) -> None:
    backoff = Backoff(minimum=LEASE, maximum=LEASE * 8)
    await harness.declare(GroupSpec(name=G, max_delivery_attempts=2, max_crashes=None, backoff=backoff))
    await harness.publish("a")
    for _ in range(5):
        await harness.broker.settle([Postpone((await harness.pull_one()).ack_id)])
    await harness.pull_one()
    await harness.let_pass(LEASE)
    assert (await harness.stats()).delayed == 1
    await harness.let_pass(LEASE + MOMENT)
    assert (await harness.stats()).ready == 1
    await harness.broker.settle([Postpone((await harness.pull_one()).ack_id)])
    assert await harness.letters() == []
    await harness.retry(await harness.pull_one())
    (letter,) = await harness.letters()
    assert (letter.kind, letter.attempt, letter.failures, letter.crashes) == (FailureKind.TRANSIENT, 8, 1, 1)


async def test_a_postponed_message_waits_for_its_delay_and_remembers_why(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.broker.settle([Postpone(delivery.ack_id, LEASE, harness.error("429"))])
    assert await harness.broker.settle([Postpone(delivery.ack_id)]) == [delivery.ack_id]
    assert (await harness.stats()).delayed == 1
    assert await harness.pull() == []
    await harness.let_pass(LEASE + MOMENT)
    again = await harness.pull_one()
    assert ([error.message for error in again.errors], again.attempt, again.failures) == (["429"], 2, 0)


async def test_the_journal_tells_a_postponement_from_a_failure(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one(worker="one")
    await harness.broker.settle([Postpone(delivery.ack_id, LEASE, harness.error("429"), 7)])
    row = (await harness.rows())[-1]
    assert (row["event"], row["error_kind"], row["worker"], row["run_ms"]) == ("postponed", "postponed", "one", 7)
    assert (row["attempt"], row["failures"], row["crashes"]) == (1, 0, 0)
    assert LEASE - MOMENT < from_ms(row["ready_at"]) - from_ms(row["at"]) <= LEASE
    assert row["error_fingerprint"] == harness.error("429").fingerprint


async def test_counters_and_errors_survive_a_restart(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.retry(await harness.pull_one(), text="first")
    await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    await harness.restart()
    delivery = await harness.pull_one()
    assert (delivery.attempt, delivery.failures, delivery.crashes) == (3, 1, 1)
    assert [error.message for error in delivery.errors] == ["first"]


async def test_each_group_counts_for_itself(harness: Harness) -> None:
    await harness.declare("billing", "mail")
    await harness.publish("a")
    await harness.retry(await harness.pull_one(group="billing"))
    assert (await harness.pull_one(group="mail")).failures == 0
    assert (await harness.pull_one(group="billing")).failures == 1


async def test_max_crashes_isolates_a_message_as_poison(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_crashes=2))
    await harness.publish("a")
    for _ in range(2):
        await harness.pull_one()
        await harness.let_pass(LEASE + MOMENT)
    (letter,) = await harness.letters()
    assert (letter.kind, letter.attempt, letter.failures, letter.crashes) == (FailureKind.POISON, 2, 0, 2)
    assert (await harness.stats()).depth == 0


async def test_three_crashes_are_poison_unless_a_group_says_otherwise(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    for crash in range(3):
        assert await harness.letters() == []
        assert (await harness.pull_one()).crashes == crash
        await harness.let_pass(LEASE + MOMENT)
    assert [letter.kind for letter in await harness.letters()] == [FailureKind.POISON]


async def test_failures_are_not_crashes(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_crashes=1))
    await harness.publish("a")
    for _ in range(4):
        await harness.retry(await harness.pull_one())
    assert (await harness.stats()).ready == 1


async def test_without_max_crashes_a_message_comes_back_for_ever(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_crashes=None))
    await harness.publish("a")
    for crash in range(6):
        assert (await harness.pull_one()).crashes == crash
        await harness.let_pass(LEASE + MOMENT)


async def test_max_delivery_attempts_gives_up_after_so_many_retries(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_delivery_attempts=2))
    await harness.publish("a")
    for _ in range(2):
        await harness.retry(await harness.pull_one(), LEASE)
        await harness.let_pass(LEASE + MOMENT)
    (letter,) = await harness.letters()
    assert (letter.kind, letter.attempt, letter.failures) == (FailureKind.TRANSIENT, 2, 2)


async def test_max_delivery_attempts_gives_up_after_so_many_silent_deliveries(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_delivery_attempts=2, max_crashes=None))
    await harness.publish("a")
    for _ in range(2):
        await harness.pull_one()
        await harness.let_pass(LEASE + MOMENT)
    (letter,) = await harness.letters()
    assert (letter.kind, letter.attempt, letter.crashes) == (FailureKind.TRANSIENT, 2, 2)


async def test_poison_is_looked_for_before_attempts(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_delivery_attempts=1, max_crashes=1))
    await harness.publish("a")
    await harness.pull_one()
    await harness.let_pass(LEASE + MOMENT)
    assert [letter.kind for letter in await harness.letters()] == [FailureKind.POISON]


async def test_the_backoff_of_a_group_delays_what_fell_silent_and_doubles(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, max_crashes=None, backoff=Backoff(minimum=LEASE, maximum=LEASE * 3)))
    await harness.publish("a")
    for factor in (1, 2, 3, 3):
        await harness.pull_one(lease=LEASE)
        await harness.let_pass(LEASE)
        if harness.clock:
            assert (await harness.rows())[-1]["ready_at"] == harness.now_ms + 400 * factor
        assert (await harness.stats()).delayed == 1
        await harness.let_pass(LEASE * factor + MOMENT)
        assert (await harness.stats()).ready == 1


async def test_an_outage_moves_open_leases_forward_once_by_one_lease(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one()
    await harness.outage(LEASE + MOMENT)
    await harness.broker.maintain()
    assert (await harness.stats()).leased == 1
    moved = (await harness.rows())[-1]
    assert moved["event"] == "lease_moved"
    assert from_ms(moved["at"]) + LEASE - from_ms(moved["lease_until"]) < MOMENT
    await harness.let_pass(LEASE)
    assert await counters(harness) == (2, 0, 1)


async def test_after_an_outage_of_many_leases_the_worker_still_has_one_lease_from_then_on(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.outage(LEASE * 10)
    await harness.broker.maintain()
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []


async def test_outages_do_not_add_up_so_that_a_silent_worker_gives_back_one_lease_after_the_last(
    harness: Harness,
) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one()
    for _ in range(6):
        await harness.outage(LEASE + MOMENT)
        await harness.broker.maintain()
    assert (await harness.stats()).leased == 1
    await harness.let_pass(LEASE)
    assert await counters(harness) == (2, 0, 1)


async def test_only_silence_that_goes_on_after_an_outage_counts_as_a_crash(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    for long_outages in range(3):
        delivery = await harness.pull_one()
        assert (delivery.failures, delivery.crashes) == (0, long_outages)
        await harness.outage(LEASE * 4)
        await harness.broker.maintain()
        await harness.let_pass(LEASE)
    (letter,) = await harness.letters()
    assert (letter.kind, letter.crashes) == (FailureKind.POISON, 3)


async def test_five_outages_do_not_make_a_healthy_message_poison(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    for _ in range(5):
        await harness.outage(LEASE + MOMENT)
        await harness.broker.maintain()
        assert await harness.broker.extend([delivery.ack_id], LEASE) == []
    assert await harness.broker.settle([Ack(delivery.ack_id)]) == []
    assert await harness.letters() == []


async def test_a_lease_longer_than_the_outage_is_left_alone(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    await harness.pull_one(lease=LONG)
    await harness.outage(LEASE * 2)
    await harness.broker.maintain()
    assert "lease_moved" not in await harness.events()


async def test_of_two_leases_only_the_one_shorter_than_the_outage_moves(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("short", "long")
    await harness.pull_one()
    await harness.pull_one(lease=LONG)
    await harness.outage(LEASE * 2)
    await harness.broker.maintain()
    assert [row["message_id"] for row in await harness.rows() if row["event"] == "lease_moved"] == ["short"]


async def test_a_group_that_forgives_no_outage_takes_leases_back_at_once(harness: Harness) -> None:
    await harness.declare(GroupSpec(name=G, forgive_outages=False))
    await harness.publish("a")
    await harness.pull_one()
    await harness.outage(LEASE * 10)
    assert await counters(harness) == (2, 0, 1)


async def test_the_error_history_is_kept_in_order_and_bounded(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    for n in range(HISTORY_LENGTH + 5):
        await harness.retry(await harness.pull_one(), text=f"error {n}")
    texts = [error.message for error in (await harness.pull_one()).errors]
    assert texts == ["error 0", *(f"error {n}" for n in range(6, HISTORY_LENGTH + 5))]


async def test_a_retry_without_an_error_counts_but_adds_no_history(harness: Harness) -> None:
    await harness.declare()
    await harness.publish("a")
    delivery = await harness.pull_one()
    await harness.broker.settle([Nack(delivery.ack_id, timedelta(0))])
    again = await harness.pull_one()
    assert (again.failures, again.errors) == (1, ())
