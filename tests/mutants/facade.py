"""Bugs planted in `MessageQueue`."""

from __future__ import annotations

from typing import Final

from tests.mutants.plant import Mutant


def seen_by(name: str) -> tuple[str, ...]:
    """Name a test of the facade (`module::test`)."""
    return (f"tests/messagequeue/test_{name}",)


MUTANTS: Final = (
    Mutant(
        name="facade: leases end only when somebody pulls",
        file="messagequeue/topics.py",
        old="for name in self._due_times.due(now_ms):",
        new="for name in list(self._due_times.due(now_ms))[:0]:",
        tests=seen_by("leases.py::test_br_018_an_expired_ack_id_is_refused_even_before_anybody_pulls"),
    ),
    Mutant(
        name="facade: an ack id of an earlier attempt is taken",
        file="messagequeue/subscription.py",
        old="if delivery is not None and ack_id_of(delivery) == ack_id:",
        new="if delivery is not None:",
        tests=seen_by("leases.py::test_br_018_an_ack_id_with_another_attempt_is_refused"),
    ),
    Mutant(
        name="facade: a nack does not wait for its backoff",
        file="messagequeue/subscription.py",
        old="self._backoff.delay(attempt=delivery.attempt) if self._backoff is not None else timedelta(0)",
        new="timedelta(0)",
        tests=seen_by("retry_and_dead_letters.py::test_br_015_a_message_comes_back_exactly_after_its_backoff"),
    ),
    Mutant(
        name="facade: a full subscription takes one message more",
        file="messagequeue/subscription.py",
        old="if messages >= MAX_MESSAGES or",
        new="if messages > MAX_MESSAGES or",
        tests=seen_by("publishing.py::test_br_022_a_full_subscription_drops_new_messages_and_others_go_on"),
    ),
    Mutant(
        name="facade: a subscription outlives its topic with its messages",
        file="messagequeue/topics.py",
        old="            subscription.detach()\n",
        new="",
        tests=seen_by(
            "registering.py::test_br_012_unregistering_a_topic_keeps_its_subscriptions_and_clears_their_messages"
        ),
    ),
    Mutant(
        name="facade: a silent worker is forgiven as if the broker had been away",
        file="messagequeue/subscription.py",
        old="            forgive_outages=False,\n",
        new="            forgive_outages=True,\n",
        tests=seen_by("acceptance.py::test_ac_007_ack_deadline_expiry_redelivers"),
    ),
    Mutant(
        name="facade: time goes back with the clock",
        file="messagequeue/topics.py",
        old="self._now_ms, self._lag = advanced(self._now_ms, self._clock.now_ms(), self._lag)",
        new="self._now_ms = self._clock.now_ms()",
        tests=seen_by("retry_and_dead_letters.py::test_a_clock_that_went_back_does_not_shorten_the_retention"),
    ),
)
