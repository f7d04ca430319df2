"""What an error means for a message: by type, by status code, by the application's own word."""

from __future__ import annotations

import pickle
import smtplib
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from godwit.core.failures.failure import ErrorType, FailureKind
from godwit.core.failures.judgement import Permanent, Retry, Verdict, classify, judge, retry_after
from godwit.core.failures.retry import RetryPolicy, Strategy

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
TRANSIENT, PERMANENT = FailureKind.TRANSIENT, FailureKind.PERMANENT


class ConnectTimeout(Exception):
    """Named as HTTP libraries name theirs."""


class ValidationError(Exception):
    """Named as validating libraries name theirs."""


class HTTPError(Exception):
    """Carries a response, as HTTP libraries do."""

    def __init__(self, status: int, headers: dict[str, str] | None = None) -> None:
        super().__init__(status)
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()


@pytest.mark.parametrize(
    ("error", "kind", "type_"),
    [
        (TimeoutError(), TRANSIENT, ErrorType.TIMEOUT),
        (ConnectTimeout(), TRANSIENT, ErrorType.TIMEOUT),
        (ConnectionRefusedError(111, "refused"), TRANSIENT, ErrorType.NETWORK),
        (BrokenPipeError(), TRANSIENT, ErrorType.NETWORK),
        (HTTPError(408), TRANSIENT, ErrorType.NETWORK),
        (HTTPError(429), TRANSIENT, ErrorType.NETWORK),
        (HTTPError(503), TRANSIENT, ErrorType.NETWORK),
        (HTTPError(400), PERMANENT, ErrorType.VALIDATION),
        (HTTPError(401), PERMANENT, ErrorType.UNKNOWN),
        (HTTPError(404), PERMANENT, ErrorType.UNKNOWN),
        (HTTPError(422), PERMANENT, ErrorType.VALIDATION),
        (smtplib.SMTPResponseException(451, "later"), TRANSIENT, ErrorType.NETWORK),
        (smtplib.SMTPResponseException(550, "no such user"), PERMANENT, ErrorType.NETWORK),
        (msgspec.ValidationError("bad"), PERMANENT, ErrorType.VALIDATION),
        (ValidationError("bad"), PERMANENT, ErrorType.VALIDATION),
        (Permanent("never"), PERMANENT, ErrorType.UNKNOWN),
        (Retry("later"), TRANSIENT, ErrorType.UNKNOWN),
        (ValueError("validation is only a word here"), TRANSIENT, ErrorType.UNKNOWN),
        (KeyError("x"), TRANSIENT, ErrorType.UNKNOWN),
    ],
    ids=repr,
)
def test_errors_are_told_apart_by_type_and_code(error: Exception, kind: FailureKind, type_: ErrorType) -> None:
    verdict = classify(error, now=NOW)
    assert (verdict.kind, verdict.type) == (kind, type_)


def test_the_cause_of_an_error_counts_when_the_error_itself_says_nothing() -> None:
    error = RuntimeError("sending failed")
    error.__cause__ = ConnectionResetError()
    assert classify(error, now=NOW).type is ErrorType.NETWORK


def test_an_application_judges_first_and_may_leave_it_to_the_rules() -> None:
    def hook(error: BaseException) -> Verdict | None:
        return Verdict(kind=PERMANENT) if isinstance(error, KeyError) else None

    assert classify(KeyError("x"), now=NOW, hook=hook).kind is PERMANENT
    assert classify(TimeoutError(), now=NOW, hook=hook).type is ErrorType.TIMEOUT


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "120"}, timedelta(seconds=120)),
        ({"Retry-After": "Sun, 15 Nov 2026 12:05:00 GMT"}, timedelta(minutes=5)),
        ({"Retry-After": "Sun, 15 Nov 2026 11:00:00 GMT"}, timedelta(0)),
        ({"Retry-After": "999999999"}, timedelta(days=1)),
        ({"Retry-After": "soon"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_server_may_say_when_to_come_back(headers: Any, wait: timedelta | None) -> None:
    assert retry_after(headers, NOW) == wait


POLICY = RetryPolicy(max_attempts=3, initial_delay=timedelta(seconds=1), by_kind={"validation": Strategy.NONE})
NOW_MS = round(NOW.timestamp() * 1000)


def test_a_judgement_follows_the_policy_until_the_attempts_are_used_up() -> None:
    found = [judge(ValueError("x"), failures=n, policy=POLICY, now_ms=NOW_MS, jitter=0) for n in range(3)]
    assert [one.delay for one in found] == [timedelta(seconds=1), timedelta(seconds=2), None]
    assert found[2].kind is TRANSIENT
    assert found[0].error.timestamp == NOW


def test_retry_after_wins_over_the_policy_but_not_over_its_end() -> None:
    error = HTTPError(429, {"Retry-After": "60"})
    first = judge(error, failures=0, policy=POLICY, now_ms=NOW_MS, jitter=0)
    last = judge(error, failures=2, policy=POLICY, now_ms=NOW_MS, jitter=0)
    assert (first.delay, last.delay) == (timedelta(seconds=60), None)


def test_a_last_attempt_that_ran_out_of_time_is_dead_as_expired() -> None:
    assert judge(TimeoutError(), failures=2, policy=POLICY, now_ms=NOW_MS, jitter=0).kind is FailureKind.EXPIRED


def test_the_exceptions_of_handlers_pickle() -> None:
    again = pickle.loads(pickle.dumps(Retry("busy", after=timedelta(seconds=3))))
    assert (again.reason, again.after) == ("busy", timedelta(seconds=3))
    assert str(pickle.loads(pickle.dumps(Permanent("no")))) == "no"
