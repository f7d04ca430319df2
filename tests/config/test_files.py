from __future__ import annotations

import pickle
from datetime import timedelta
from pathlib import Path

import pytest

from godwit.brokers.rabbitmq.url import Address
from godwit.cli.args.values import duration
from godwit.config import load
from godwit.config.loader import settings_from
from godwit.config.sources import Document
from godwit.core.durations import parse_duration, written
from godwit.core.errors import ConfigurationError, InvalidSetting
from godwit.core.failures.retry import Backoff, Strategy
from godwit.core.names import GroupName, QueueName
from godwit.core.queues import JournalBody, Overflow, QueueType
from godwit.core.settings import TYPE_DEFAULTS, LoadBalancing, QueueOrder, Settings


def read(text: str, environment: dict[str, str] | None = None, **arguments: object) -> Settings:
    return settings_from(Document(text, "godwit.toml"), environment or {}, arguments)


def refused(text: str, environment: dict[str, str] | None = None) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        read(text, environment)
    return caught.value


def test_without_a_file_and_variables_the_defaults_hold() -> None:
    settings = load(environment={})
    assert settings == Settings()
    assert settings.origins == {"broker_url": "default"}


def test_everything_a_queue_and_a_group_can_say_is_heard() -> None:
    queue, *_ = read(
        """
        [[queues]]
        name = "orders"
        type = "bulk"
        priority = 7
        max_size = 10
        max_bytes = 1000
        max_delayed = 5
        ttl = "1m"
        dead_letter_queue = "dead"
        dedup_window = "1h"
        lanes = 1
        journal_body = "on"
        journal_keep = "2d"
        journal_max_bytes = 1_000_000
        journal_attributes = ["tenant", "region"]
        retry_policy.max_attempts = 4
        retry_policy.backoff_strategy = "linear"
        retry_policy.initial_delay = "100ms"
        retry_policy.max_delay = "1s"
        retry_policy.jitter = 0.2

        [[queues.consumer_groups]]
        name = "billing"
        max_concurrency = 3
        max_leased_bytes = 500
        message_ordering = true
        max_crashes = "none"
        max_delivery_attempts = 9
        backoff = { minimum = "1s", maximum = "1m" }
        overflow = "drop"
        lease = "20s"
        processing_timeout = "90s"
        batch_size = 50
        batch_timeout = "250ms"
        load_balancing = "round_robin"
        health_check = { interval = "3s", timeout = "1s" }
        filter = 'type == "order"'
        retry_policy = { max_attempts = 2, by_kind = { timeout = "fixed" } }

        [[queues.routing.rules]]
        condition = "priority > 80"
        target = "orders"
        """
    ).queues
    spec = queue.spec
    assert (spec.type, spec.priority, spec.max_size, spec.max_bytes) == (QueueType.BULK, 7, 10, 1000)
    assert (spec.max_delayed, spec.lanes, spec.journal_max_bytes) == (5, 1, 1_000_000)
    assert spec.journal_attributes == ("tenant", "region")
    assert (spec.ttl, spec.dedup_window) == (timedelta(minutes=1), timedelta(hours=1))
    assert (spec.journal_body, spec.journal_keep) == (JournalBody.ON, timedelta(days=2))
    assert spec.dead_letter_queue == "dead"
    assert queue.retry_policy.max_attempts == 4
    assert queue.retry_policy.strategy is Strategy.LINEAR
    assert queue.retry_policy.initial_delay == timedelta(milliseconds=100)
    assert queue.retry_policy.max_delay == timedelta(seconds=1)
    assert queue.retry_policy.multiplier == 2
    assert queue.retry_policy.jitter == 0.2
    (group,) = queue.groups
    assert group.name == "billing"
    assert group.max_concurrency == group.spec.flow_control.max_messages == 3
    assert group.spec.flow_control.max_bytes == 500
    assert group.spec.message_ordering
    assert (group.spec.max_crashes, group.spec.max_delivery_attempts) == (None, 9)
    assert group.spec.backoff == Backoff(minimum=timedelta(seconds=1), maximum=timedelta(minutes=1))
    assert group.spec.overflow is Overflow.DROP
    assert (group.lease, group.processing_timeout) == (timedelta(seconds=20), timedelta(seconds=90))
    assert (group.batch_size, group.batch_timeout) == (50, timedelta(milliseconds=250))
    assert group.load_balancing is LoadBalancing.ROUND_ROBIN
    assert group.health_check.interval == timedelta(seconds=3)
    assert group.health_check.timeout == timedelta(seconds=1)
    assert group.filter == 'type == "order"'
    own = queue.retry_policy_for(GroupName("billing"))
    assert (own.max_attempts, own.strategy, own.by_kind) == (2, Strategy.LINEAR, {"timeout": Strategy.FIXED})
    assert queue.retry_policy_for(GroupName("another")) == queue.retry_policy
    assert [(rule.condition, rule.target) for rule in queue.rules] == [("priority > 80", "orders")]


def test_groups_are_names_or_tables_and_take_the_rest_from_the_consumer_section() -> None:
    settings = read(
        """
        [consumer]
        lease = "7s"
        queue_order = "strict"
        health_check = { interval = "4s", timeout = "400ms" }
        [[queues]]
        name = "a"
        consumer_groups = ["one", { name = "two", lease = "9s" }]
        [[queues]]
        name = "b"
        """
    )
    one, two = settings.queues[0].groups
    (default,) = settings.queues[1].groups
    assert [group.lease for group in (one, two, default)] == [timedelta(seconds=n) for n in (7, 9, 7)]
    assert default.name == "default"
    assert two.health_check.interval == timedelta(seconds=4)
    assert settings.consumer.queue_order is QueueOrder.STRICT


@pytest.mark.parametrize("type", QueueType)
def test_a_queues_type_sets_its_defaults_and_nothing_else(type: QueueType) -> None:
    (queue,) = read(f'[[queues]]\nname = "a"\ntype = "{type}"').queues
    kind = TYPE_DEFAULTS[type]
    assert (queue.spec.priority, queue.spec.ttl, queue.spec.max_size) == (kind.priority, kind.ttl, kind.max_size)
    assert queue.retry_policy == kind.retry_policy
    assert queue == Settings().queue(QueueName("a"), type=type)


def test_a_standard_queue_has_no_limit_unless_it_states_one() -> None:
    unlimited, limited = read('[[queues]]\nname = "a"\n[[queues]]\nname = "b"\nmax_size = 5').queues
    assert (unlimited.spec.max_size, limited.spec.max_size) == (None, 5)


def test_a_dead_letter_queue_without_consumers_has_no_group() -> None:
    (queue,) = read('[[queues]]\nname = "a"\ntype = "dead_letter"').queues
    assert queue.groups == ()
    (queue,) = read('[[queues]]\nname = "a"\ntype = "dead_letter"\nconsumer_groups = ["undertakers"]').queues
    assert [group.name for group in queue.groups] == ["undertakers"]


def test_an_argument_wins_over_the_environment_and_that_over_the_file() -> None:
    text, environment = "[consumer]\nbatch_size = 1", {"QUEUE_BATCH_SIZE": "2"}
    name = "consumer.batch_size"
    by_all = read(text, environment, **{name: 3})
    assert (by_all.consumer.batch_size, by_all.origins[name]) == (3, "argument")
    by_two = read(text, environment)
    assert (by_two.consumer.batch_size, by_two.origins[name]) == (2, "env QUEUE_BATCH_SIZE")
    by_file = read(text)
    assert (by_file.consumer.batch_size, by_file.origins[name]) == (1, "godwit.toml:2")
    assert "consumer.batch_size" not in read("").origins


def test_what_a_queue_says_itself_wins_over_variables_for_all_queues() -> None:
    text = """
        [defaults]
        ttl = "10s"
        [[queues]]
        name = "own"
        ttl = "20s"
        retry_policy.max_attempts = 9
        [[queues]]
        name = "plain"
        type = "priority"
        [[queues]]
        name = "endless"
        ttl = "none"
        """
    own, plain, endless = read(text, {"QUEUE_DEFAULT_TTL": "30", "MAX_RETRIES": "2"}).queues
    assert [queue.spec.ttl for queue in (own, plain, endless)] == [timedelta(seconds=20), timedelta(seconds=30), None]
    assert [queue.retry_policy.max_attempts for queue in (own, plain, endless)] == [9, 2, 2]
    assert read(text).queues[1].spec.ttl == timedelta(seconds=10)


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("500ms", timedelta(seconds=0.5)),
        ("1.5s", timedelta(seconds=1.5)),
        ("30s", timedelta(seconds=30)),
        ("5m", timedelta(minutes=5)),
        ("1h", timedelta(hours=1)),
        ("7d", timedelta(days=7)),
    ],
)
def test_a_duration_says_the_same_in_the_file_in_a_variable_in_a_url_and_on_the_command_line(
    text: str, length: timedelta
) -> None:
    (queue,) = read(f'[[queues]]\nname = "a"\nttl = "{text}"\nretry_policy.initial_delay = "{text}"').queues
    assert queue.spec.ttl == queue.retry_policy.initial_delay == length
    assert read("", {"VISIBILITY_TIMEOUT": text}).consumer.lease == length
    assert read("", None, **{"consumer.lease": text}).consumer.lease == length
    assert Address.from_url(f"amqp://h?publish_timeout={text}").publish_seconds == length.total_seconds()
    assert duration(text) == length
    assert parse_duration(written(length)) == length


def test_a_bare_number_is_refused_in_the_file_and_counts_seconds_elsewhere() -> None:
    for text in ("lease = 15_000", "lease = 0.5", 'lease = "15"'):
        assert '"' in refused(f"[consumer]\n{text}").remedy
    assert read("[consumer]\nbatch_timeout = 0").consumer.batch_timeout == timedelta(0)
    assert read("[monitoring]\nretention_days = 7").monitoring.retention == timedelta(days=7)
    assert read("", None, **{"consumer.lease": 5}).consumer.lease == timedelta(seconds=5)
    assert Address.from_url("amqp://h?heartbeat=5").heartbeat == 5
    assert duration("5") == timedelta(seconds=5)


def test_a_number_in_an_old_variable_counts_what_its_specification_says() -> None:
    settings = read("", {"VISIBILITY_TIMEOUT": "300000", "QUEUE_DEFAULT_TTL": "300"})
    assert settings.consumer.lease == settings.defaults.ttl == timedelta(minutes=5)
    thresholds = read("", {"MONITORING_ALERT_THRESHOLDS": '{"processing_time": 2000}'}).monitoring.alert_thresholds
    assert thresholds.processing_time == timedelta(seconds=2)


@pytest.mark.parametrize("option", ["heartbeat", "publish_timeout", "message_ttl", "prefetch", "management"])
@pytest.mark.parametrize("text", ["nan", "inf", "-1", "", "soon", "1e5"])
def test_an_option_of_a_url_that_is_no_number_is_refused_by_name(option: str, text: str) -> None:
    with pytest.raises(InvalidSetting, match=f"url option {option}"):
        Address.from_url(f"amqp://h?{option}={text}")


QUEUE = '[[queues]]\nname = "a"\n'


@pytest.mark.parametrize(
    ("text", "line", "problem", "remedy"),
    [
        ("a = ", 1, "this is not TOML", "Correct"),
        ("a = 1\na = 2", 2, "this is not TOML", "Correct"),
        ("\nconsumers = 1", 2, "there is no key 'consumers'", "Did you mean consumer?"),
        ("[consumer]\nleese = 1", 2, "there is no key 'consumer.leese'", "Did you mean lease?"),
        ("[consumer]\nvisibility_timeout = 1", 2, "'consumer.visibility_timeout'", "Did you mean lease?"),
        ("[consumer]\nmaxConcurrency = 1", 2, "'consumer.maxConcurrency'", "Did you mean max_concurrency?"),
        ("[consumer]\nzzz = 1", 2, "'consumer.zzz'", "Known here: max_concurrency,"),
        ("consumer = 5", 1, "consumer is 5", "[consumer]"),
        ("[consumer]\n\nlease = 0", 3, "consumer.lease is 0", "above 0"),
        (
            "[consumer]\nlease = 15000",
            2,
            "consumer.lease is 15000",
            'Write it with its unit: "15s" if it counts millisec',
        ),
        (QUEUE + "ttl = 3600", 3, "ttl is 3600", 'Write it with its unit: "1h" if it counts seconds'),
        ("[consumer]\nlease = true", 2, "consumer.lease is True", '"30s"'),
        ("[consumer]\nlease = inf", 2, "consumer.lease is inf", '"30s"'),
        ("[consumer]\nlease = nan", 2, "consumer.lease is nan", '"30s"'),
        ('[consumer]\nlease = "15"', 2, "consumer.lease is '15'", '"30s"'),
        ('[consumer]\nmax_concurrency = "10"', 2, "is '10'", "a whole number, 1 or more"),
        ("[consumer]\nhealth_check.timeout = '1h'", 2, "consumer.health_check.timeout is longer than", "Change one"),
        ('[defaults.retry_policy]\ninitial_delay = "2s"\nmax_delay = "1s"', 2, "is longer than", "Change one"),
        ("[defaults]\nretry_policy.jitter = 2", 2, "jitter is 2", "0 to 1"),
        ("[monitoring]\ntracing = 1", 2, "tracing is 1", "true or false"),
        ("[monitoring]\nhttp_port = 0", 2, "http_port is 0", "1 to 65,535"),
        ("queues = 5", 1, "queues is 5", "[[queues]]"),
        ("[queues.a]\nttl = 1", 1, "queues is {", "[[queues]]"),
        ("queues = [5]", 1, "is 5", "Write a table"),
        ("[[queues]]\nlanes = 1", 1, "queues has no name", 'name = "..."'),
        ('[[queues]]\nname = "a b"', 2, "name is 'a b'", "letters, digits"),
        (QUEUE + "max_sise = 1", 3, "there is no key 'max_sise'", "Did you mean max_size?"),
        (QUEUE + "maxSize = 1", 3, "there is no key 'maxSize'", "Did you mean max_size?"),
        (QUEUE + "max_attempts = 1", 3, "'max_attempts'", "Did you mean retry_policy.max_attempts?"),
        (QUEUE + "retry_attempts = 1", 3, "'retry_attempts'", "Did you mean retry_policy.max_attempts?"),
        (QUEUE + 'rules = ["a"]', 3, "'rules'", "Did you mean routing.rules?"),
        (QUEUE + "max_size = 0", 3, "max_size is 0", '1 or more, or "none"'),
        (QUEUE + "priority = 101", 3, "priority is 101", "0 to 100"),
        (QUEUE + "lanes = 2", 3, "lanes is 2", "1 or 4"),
        (QUEUE + 'type = "fifo"', 3, "type is 'fifo'", '"standard"'),
        (QUEUE + 'dead_letter_queue = "a"', 3, "dead_letter_queue is 'a'", "another queue"),
        (QUEUE + "retry_policy = 3", 3, "retry_policy is 3", "[queues.retry_policy]"),
        (QUEUE + "[queues.retry_policy]\nmax_attempts = 0", 4, "max_attempts is 0", "1 or more"),
        (QUEUE + "retry_policy.multiplier = 0.5", 3, "multiplier is 0.5", "1 or more"),
        (QUEUE + 'retry_policy.by_kind = { typo = "none" }', 3, "by_kind is {", "network, validation"),
        (
            QUEUE + 'retry_policy = { initial_delay = "2s", max_delay = "1s" }',
            3,
            "longer than max_delay",
            "Raise max_delay",
        ),
        (QUEUE + "consumer_groups = []", 3, "queue 'a' has no group", "leave the key out"),
        (QUEUE + 'consumer_groups = "x"', 3, "consumer_groups is 'x'", "[[queues.consumer_groups]]"),
        (QUEUE + 'consumer_groups = [\n"x",\n5]', 5, "is 5", "Write a table"),
        (QUEUE + 'consumer_groups = [\n"x",\n"y",\n"x"]', 6, "was configured before, at godwit.toml:4", "Keep one"),
        (QUEUE + '[[queues.consumer_groups]]\nname = "g"\nlease = -1', 5, "lease is -1", "above 0"),
        (QUEUE + '[[queues.consumer_groups]]\nname = "g"\nleas = 1', 5, "'leas'", "Did you mean lease?"),
        (
            QUEUE + '[[queues.consumer_groups]]\nname = "g"\nbackoff.minimum = "1h"',
            5,
            "backoff is",
            "minimum <= maximum",
        ),
        (QUEUE + '[[queues.consumer_groups]]\nname = "g"\nhealth_check.timeout = "1h"', 3, "longer than", "less time"),
        (QUEUE + '[[queues.routing.rules]]\ncondition = "x"', 3, "rules has no target", 'target = "..."'),
        (QUEUE + '[[queues.routing.rules]]\ncondition = "x"\ntarget = "aa"', 5, "'aa' is not configured", "mean 'a'?"),
        (QUEUE + '[[queues.routing.rules]]\nconditon = "x"', 4, "'conditon'", "Did you mean condition?"),
        (QUEUE + QUEUE, 3, "queue 'a' was configured before, at godwit.toml:1", "Keep one"),
        ('default_queue = "b"\n' + QUEUE, 1, "default_queue 'b' is not configured (configured: 'a')", "[[queues]]"),
        (
            QUEUE + 'dead_letter_queue = "b"\n[[queues]]\nname = "b"\ndead_letter_queue = "a"',
            3,
            "dead letters go round: a -> b -> a",
            "have none",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_line_and_what_to_write(text: str, line: int, problem: str, remedy: str) -> None:
    error = refused(text)
    assert error.where.split(", ")[0] == f"godwit.toml:{line}"
    assert problem in error.fact
    assert remedy in error.remedy


def test_a_queue_that_feeds_a_circle_without_being_in_it_is_not_blamed() -> None:
    text = "".join(
        f'[[queues]]\nname = "{name}"\ndead_letter_queue = "{target}"\n' for name, target in ("ab", "bc", "cb")
    )
    assert refused(text).where == "godwit.toml:6"


def test_every_value_that_was_stated_knows_its_line() -> None:
    settings = read(QUEUE + "ttl = '5s'\n[[queues.consumer_groups]]\nname = 'g'\nlease = '9s'\n", {"MAX_RETRIES": "2"})
    origins = settings.origins
    assert origins["queues[a].ttl"] == "godwit.toml:3"
    assert origins["queues[a].priority"] == "type standard"
    assert origins["queues[a].retry_policy.max_attempts"] == "env MAX_RETRIES"
    assert origins["queues[a].consumer_groups[g].lease"] == "godwit.toml:6"
    assert "queues[a].lanes" not in origins


def test_an_unknown_argument_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"Did you mean consumer\.batch_size"):
        read("", None, batch_size=3)
    with pytest.raises(ConfigurationError, match=r"argument: consumer.batch_size is 0"):
        read("", None, **{"consumer.batch_size": 0})


def test_a_missing_unreadable_or_foreign_file_is_refused_by_name(tmp_path: Path) -> None:
    for file, problem in ((tmp_path / "absent.toml", "there is no such file"), (tmp_path, "cannot be read")):
        with pytest.raises(ConfigurationError, match=problem) as caught:
            load(file, environment={})
        assert caught.value.where == str(file)
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b'# fine\napp_version = "\xe9"\n')
    with pytest.raises(ConfigurationError, match="not UTF-8") as caught:
        load(latin, environment={})
    assert caught.value.where == f"{latin}:2"


def test_a_document_nested_without_end_is_refused_and_not_a_crash() -> None:
    assert "not TOML" in refused("a = " + "[" * 100_000).fact


def test_a_file_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    file = tmp_path / "godwit.toml"
    file.write_bytes(b'\xef\xbb\xbfapp_version = "1"\r\n')
    assert load(file, environment={}).app_version == "1"


def test_settings_and_errors_travel_to_other_processes() -> None:
    settings = read(QUEUE + "consumer_groups = ['x', { name = 'y' }]")
    copy = pickle.loads(pickle.dumps(settings))
    assert copy == settings
    assert copy.origins == settings.origins
    error = refused("nonsense = 1")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
