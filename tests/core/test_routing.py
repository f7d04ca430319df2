"""Which queue a message goes to: precedence, overlap, no match, and the reasons given."""

from __future__ import annotations

import pickle
from datetime import timedelta

import msgspec
import pytest

from godwit.core.errors import InvalidCondition, InvalidMessage, TransformFailed, Unroutable
from godwit.core.failures.retry import RetryPolicy
from godwit.core.messages.message import Kind, Message, Routing
from godwit.core.messages.routing import Router, filters_of, transformed
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import GroupSpec, QueueSpec, QueueType
from godwit.core.settings import GroupConfiguration, QueueConfiguration, RoutingRule

HIGH, NORMAL, OTHER = QueueName("notifications:high"), QueueName("notifications:normal"), QueueName("other")


def queue(
    name: QueueName, *conditions: str, priority: int = 50, type: QueueType = QueueType.STANDARD
) -> QueueConfiguration:
    return QueueConfiguration(
        spec=QueueSpec(name=name, type=type, priority=priority, ttl=timedelta(days=1)),
        retry_policy=RetryPolicy(),
        groups=(GroupConfiguration(spec=GroupSpec(name=GroupName("email-processors"))),),
        rules=tuple(RoutingRule(condition=condition, target=name) for condition in conditions),
    )


def notifications(default_queue: QueueName | None = None) -> Router:
    """Return the two queues of specification 000, the lower one first in the file."""
    return Router(
        [
            queue(NORMAL, 'type == "standard"', "priority <= 80 && priority > 20", priority=50),
            queue(HIGH, 'type == "urgent"', "priority > 80", priority=100, type=QueueType.PRIORITY),
        ],
        default_queue=default_queue,
    )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (Message(type="urgent", priority=10), HIGH),
        (Message(type="email", priority=81), HIGH),
        (Message(type="email", kind=Kind.IMMEDIATE), HIGH),
        (Message(type="email", priority=80), NORMAL),
        (Message(type="email", priority=21), NORMAL),
        (Message(type="email"), NORMAL),
        (Message(type="standard", priority=5), NORMAL),
    ],
)
def test_the_rules_of_the_notification_queues_choose_by_type_and_priority(
    message: Message, expected: QueueName
) -> None:
    assert notifications().route(message) == expected


def test_where_rules_overlap_the_queue_with_the_higher_priority_wins_whatever_the_order_of_the_file() -> None:
    assert notifications().route(Message(type="standard", priority=90)) == HIGH


def test_queues_of_equal_priority_are_asked_in_the_order_of_the_file() -> None:
    first, second = queue(QueueName("first"), "priority > 0"), queue(QueueName("second"), "priority > 0")
    assert Router([first, second]).route(Message()) == "first"
    assert Router([second, first]).route(Message()) == "second"


def test_the_first_rule_of_a_queue_that_matches_wins() -> None:
    rules = (RoutingRule(condition="priority > 10", target=HIGH), RoutingRule(condition="priority > 0", target=NORMAL))
    router = Router([with_rules(queue(NORMAL), rules)])
    assert [router.route(Message(priority=priority)) for priority in (11, 10)] == [HIGH, NORMAL]


def with_rules(base: QueueConfiguration, rules: tuple[RoutingRule, ...]) -> QueueConfiguration:
    return QueueConfiguration(spec=base.spec, retry_policy=base.retry_policy, groups=base.groups, rules=rules)


def test_a_target_queue_goes_before_the_messages_queue_and_both_before_the_rules() -> None:
    routed = Routing(target_queue=OTHER)
    assert notifications().route(Message(queue=NORMAL, type="urgent", routing=routed)) == OTHER
    assert notifications().route(Message(queue=NORMAL, type="urgent")) == NORMAL


def test_a_message_no_rule_matches_is_unroutable_unless_there_is_a_default_queue() -> None:
    message = Message(type="email", priority=20)
    with pytest.raises(Unroutable, match="none of 4 routing rules matches it") as caught:
        notifications().route(message)
    assert pickle.loads(pickle.dumps(caught.value)).args == (message.id, "email", 4)
    assert notifications(default_queue=OTHER).route(message) == OTHER


def test_every_step_is_explained_and_at_most_one_is_chosen() -> None:
    steps = notifications(default_queue=OTHER).explain(Message(id="a", type="standard", priority=90))
    assert [(step.looked_at, step.matched, step.chosen, step.why) for step in steps] == [
        ("routing.target_queue", False, False, "it is not set"),
        ("queue", False, False, "it is not set"),
        ('rule of notifications:high: type == "urgent"', False, False, "the condition does not hold"),
        ("rule of notifications:high: priority > 80", True, True, "the condition holds"),
        ('rule of notifications:normal: type == "standard"', True, False, "the condition holds"),
        ("rule of notifications:normal: priority <= 80 && priority > 20", False, False, "the condition does not hold"),
        ("default_queue", True, False, "it names other"),
    ]


def test_an_explanation_says_why_a_condition_could_not_be_asked_and_counts_nothing() -> None:
    router = Router([queue(NORMAL, 'payload.country == "NO"')])
    steps = router.explain(Message(payload={}))
    assert (steps[2].matched, steps[2].why) == (False, "it has no field 'country'")
    assert not any(step.chosen for step in steps)
    assert router.rules[0].condition.failures == 0


def test_a_condition_that_cannot_be_asked_is_no_match_and_is_reported_once() -> None:
    reports: list[tuple[str, str]] = []
    router = Router(
        [queue(NORMAL, 'payload.country == "NO"')],
        default_queue=OTHER,
        report=lambda condition, problem: reports.append((condition, problem)),
    )
    routes = [router.route(Message(payload=payload)) for payload in ({}, None, {"country": "NO"}, [1])]
    assert routes == [OTHER, OTHER, NORMAL, OTHER]
    assert reports == [('payload.country == "NO"', "it has no field 'country'")]
    assert router.rules[0].condition.failures == 3


def test_a_bad_condition_is_refused_when_the_router_is_made() -> None:
    with pytest.raises(InvalidCondition, match="at column 8"):
        Router([queue(NORMAL, "type ==")])


def test_a_group_with_a_filter_gets_a_predicate_and_one_without_gets_none() -> None:
    groups = (
        GroupConfiguration(spec=GroupSpec(name=GroupName("norway")), filter='payload.country == "NO"'),
        GroupConfiguration(spec=GroupSpec(name=GroupName("all"))),
    )
    configured = QueueConfiguration(spec=QueueSpec(name=NORMAL), retry_policy=RetryPolicy(), groups=groups)
    filters = filters_of(configured)
    assert list(filters) == ["norway"]
    wanted = filters[GroupName("norway")]
    assert [wanted(Message(payload={"country": country})) for country in ("NO", "SE")] == [True, False]


def test_a_transform_changes_a_message_before_it_is_published() -> None:
    message = Message(queue=NORMAL, payload={"a": 1})
    changed = transformed(message, NORMAL, lambda given: msgspec.structs.replace(given, payload={"b": 2}))
    assert (changed.id, changed.payload) == (message.id, {"b": 2})


@pytest.mark.parametrize(
    ("transform", "problem"),
    [
        (lambda _: None, "returned NoneType, not a Message"),
        (lambda message: message.payload["missing"], "raised KeyError: 'missing'"),
        (lambda message: msgspec.structs.replace(message, id="other"), "changed the id"),
        (lambda message: msgspec.structs.replace(message, queue=OTHER), "sent the message to 'other'"),
    ],
)
def test_a_transform_that_returns_no_usable_message_is_a_typed_error(transform: object, problem: str) -> None:
    with pytest.raises(TransformFailed, match=problem) as caught:
        transformed(Message(queue=NORMAL, payload={}), NORMAL, transform)  # type: ignore[arg-type]
    assert pickle.loads(pickle.dumps(caught.value)).queue == NORMAL


def test_a_transform_may_refuse_a_message_with_an_error_of_ours() -> None:
    def refuse(message: Message) -> Message:
        raise InvalidMessage("payload.country", "is not served", "Send it elsewhere.")

    with pytest.raises(InvalidMessage, match="is not served"):
        transformed(Message(queue=NORMAL), NORMAL, refuse)
