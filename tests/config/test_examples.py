from __future__ import annotations

from datetime import timedelta

import pytest

from godwit.config import load
from godwit.core.failures.retry import RetryPolicy, Strategy
from godwit.core.names import QueueName
from godwit.core.queues import QueueType
from godwit.core.settings import QueueConfiguration, Settings
from tests.project.specification import ROOT

EXAMPLES = ROOT / "examples"
SECOND = timedelta(seconds=1)


def example(name: str) -> Settings:
    return load(EXAMPLES / f"{name}.toml", environment={})


def delays(policy: RetryPolicy, *, jitter: float = 0.0, kind: str | None = None) -> list[float]:
    waits = [policy.delay(attempt=attempt, jitter=jitter, kind=kind) for attempt in range(1, policy.max_attempts + 1)]
    assert waits[-1] is None
    return [wait.total_seconds() for wait in waits if wait is not None]


def rules(queue: QueueConfiguration) -> list[tuple[str, str]]:
    return [(rule.condition, rule.target) for rule in queue.rules]


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.toml")))
def test_every_example_is_read(name: str) -> None:
    assert example(name).queues


def test_the_high_queue_has_the_specifications_numbers() -> None:
    queue = example("notifications").queue(QueueName("notifications:high"))
    assert (queue.spec.type, queue.spec.priority, queue.spec.max_size) == (QueueType.PRIORITY, 100, 10_000)
    assert queue.spec.ttl == timedelta(hours=1)
    assert queue.spec.dead_letter_queue == "notifications:dlq"
    assert queue.retry_policy == RetryPolicy(
        max_attempts=5, strategy=Strategy.EXPONENTIAL, initial_delay=SECOND, max_delay=30 * SECOND, multiplier=2
    )
    assert rules(queue) == [('type == "urgent"', "notifications:high"), ("priority > 80", "notifications:high")]


def test_the_normal_queue_has_the_specifications_numbers() -> None:
    queue = example("notifications").queue(QueueName("notifications:normal"))
    assert (queue.spec.type, queue.spec.priority, queue.spec.max_size) == (QueueType.STANDARD, 50, 50_000)
    assert queue.spec.ttl == timedelta(days=1)
    assert queue.spec.dead_letter_queue == "notifications:dlq"
    assert queue.retry_policy == RetryPolicy(
        max_attempts=3, strategy=Strategy.EXPONENTIAL, initial_delay=5 * SECOND, max_delay=300 * SECOND, multiplier=2
    )
    assert rules(queue) == [
        ('type == "standard"', "notifications:normal"),
        ("priority <= 80 && priority > 20", "notifications:normal"),
    ]


def test_the_bulk_queue_has_the_settled_numbers() -> None:
    queue = example("notifications").queue(QueueName("notifications:bulk"))
    assert (queue.spec.type, queue.spec.priority, queue.spec.max_size) == (QueueType.BULK, 10, 100_000)
    assert queue.spec.ttl == timedelta(days=7)
    assert queue.retry_policy.max_attempts == 3


def test_the_four_groups_read_exactly_the_specifications_queues() -> None:
    queues_of: dict[str, list[str]] = {}
    for queue in example("notifications").queues:
        for group in queue.groups:
            queues_of.setdefault(group.name, []).append(queue.name)
    assert queues_of == {
        "email-processors": ["notifications:high", "notifications:normal", "notifications:bulk"],
        "sms-processors": ["notifications:high", "notifications:normal"],
        "push-processors": ["notifications:high", "notifications:normal", "notifications:bulk"],
        "orchestration-processors": ["notifications:high", "notifications:normal"],
    }


def test_the_dead_letter_queue_is_a_name_without_consumers() -> None:
    queue = example("notifications").queue(QueueName("notifications:dlq"))
    assert queue.spec.type is QueueType.DEAD_LETTER
    assert queue.groups == ()


def test_birthdays_may_be_delivered_six_times_with_doubling_delays() -> None:
    settings = example("birthdays")
    (queue,) = settings.queues
    assert queue.retry_policy.max_attempts == 6
    assert delays(queue.retry_policy) == [2, 4, 8, 16, 32]
    assert (queue.spec.max_size, queue.spec.ttl) == (100_000, timedelta(days=1))
    names = settings.rabbitmq
    assert names.exchange_name == queue.name == settings.default_queue == "birthday.messages"
    assert names.queue_name == queue.groups[0].name == "birthday.messages.queue"
    assert names.dlq_name == queue.spec.dead_letter_queue == "birthday.messages.dlq"
    assert names.dlx_name == "birthday.messages.dlx"
    assert names.prefetch == 5
    assert settings.scheduler.minute_schedule == "* * * * *"


@pytest.mark.parametrize(
    ("name", "slots", "waits", "limit", "timeout", "batch"),
    [
        ("development", 2, [0.5], 100, 30, 10),
        ("production", 20, [2, 4, 8, 16], 10_000, 60, 10),
        ("high-volume", 50, [1, 2], 50_000, 30, 20),
    ],
)
def test_the_three_configurations_have_the_specifications_numbers(
    name: str, slots: int, waits: list[float], limit: int, timeout: int, batch: int
) -> None:
    (queue,) = example(f"xnovu-{name}").queues
    (group,) = queue.groups
    assert group.max_concurrency == slots
    assert queue.spec.max_size == limit
    assert group.processing_timeout == timedelta(seconds=timeout)
    assert group.batch_size == batch
    policy = queue.retry_policy
    assert policy.max_attempts == len(waits) + 1
    assert delays(policy) == waits
    assert delays(policy, jitter=1) == pytest.approx([wait * 1.1 for wait in waits])
    assert delays(policy, kind="timeout") == [waits[0] * attempt for attempt in range(1, policy.max_attempts)]
    assert policy.delay(attempt=1, kind="validation") is None
