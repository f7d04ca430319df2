"""What a handler's end means: errors are told apart by type and code, and turned into a settlement."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from godwit.core.clock import from_ms
from godwit.core.errors import InvalidMessage
from godwit.core.failure import ErrorType, FailureKind, ProcessingError
from godwit.core.retry import RetryPolicy


class Retry(Exception):
    """Raised by a handler that wants the message again, after a time of its own choosing or that of the policy."""

    def __init__(self, reason: str = "", *, after: timedelta | None = None) -> None:
        self.reason, self.after = reason, after
        super().__init__(reason)

    def __reduce__(self) -> tuple[Callable[..., Retry], tuple[str, timedelta | None]]:
        """Keep `after` when pickled."""
        return (_retry, (self.reason, self.after))


def _retry(reason: str, after: timedelta | None) -> Retry:
    return Retry(reason, after=after)


class Permanent(Exception):
    """Raised by a handler that can never handle the message: it becomes a dead letter at once."""


class BatchFailed(Exception):
    """Raised by a batch handler to say which messages failed, by their place in the batch; the others are done."""

    def __init__(self, errors: dict[int, BaseException]) -> None:
        self.errors = errors
        super().__init__(errors)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an error means for the message: transient ones are tried again, permanent ones are not."""

    kind: FailureKind
    type: ErrorType = ErrorType.UNKNOWN
    retry_after: timedelta | None = None


Classifier = Callable[[BaseException], Verdict | None]
"""An application's own judgement; None leaves the error to the rules here."""

_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_CLIENT_ERRORS: Final = range(400, 500)
_SERVER_ERRORS: Final = range(500, 600)
_INVALID_STATUS: Final = frozenset({400, 422})
_LONGEST_RETRY_AFTER: Final = timedelta(days=1)
_CHAIN_LENGTH: Final = 5


def classify(error: BaseException, *, now: datetime, hook: Classifier | None = None) -> Verdict:
    """Judge an error by the application's hook, its type, its status code, or those of its causes."""
    for found in _chain(error):
        verdict = (hook(found) if hook is not None else None) or _by_type(found) or _by_status(found, now)
        if verdict is not None:
            return verdict
    return Verdict(kind=FailureKind.TRANSIENT)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Give the error and what caused it, as far as that was said."""
    found: BaseException | None = error
    for _ in range(_CHAIN_LENGTH):
        if found is None:
            return
        yield found
        found = found.__cause__


_INVALID: Final = Verdict(kind=FailureKind.PERMANENT, type=ErrorType.VALIDATION)
_SLOW: Final = Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.TIMEOUT)
_UNREACHABLE: Final = Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK)

_BY_TYPE: Final[tuple[tuple[tuple[type[BaseException], ...], Verdict], ...]] = (
    ((Permanent,), Verdict(kind=FailureKind.PERMANENT)),
    ((msgspec.ValidationError, InvalidMessage), _INVALID),
    ((TimeoutError,), _SLOW),
    ((ConnectionError,), _UNREACHABLE),
)
# Libraries that are not imported here name their errors alike: httpx.ConnectTimeout, pydantic.ValidationError, ...
_BY_NAME: Final = (
    (re.compile("ValidationError"), _INVALID),
    (re.compile(".*Timeout(Error|Exception)?"), _SLOW),
    (re.compile("ConnectError|ConnectionError|NetworkError|ClientConnectionError|gaierror"), _UNREACHABLE),
)


def _by_type(error: BaseException) -> Verdict | None:
    if isinstance(error, Retry):
        return Verdict(kind=FailureKind.TRANSIENT, retry_after=error.after)
    for types, verdict in _BY_TYPE:
        if isinstance(error, types):
            return verdict
    names = [base.__name__ for base in type(error).__mro__]
    return next((verdict for shape, verdict in _BY_NAME if any(map(shape.fullmatch, names))), None)


def _by_status(error: BaseException, now: datetime) -> Verdict | None:
    smtp = getattr(error, "smtp_code", None)
    if isinstance(smtp, int):
        permanent = smtp in _SERVER_ERRORS
        return Verdict(kind=FailureKind.PERMANENT if permanent else FailureKind.TRANSIENT, type=ErrorType.NETWORK)
    response = getattr(error, "response", None)
    status = _status(error) or _status(response)
    if status is None:
        return None
    if status in _TRANSIENT_STATUS or status in _SERVER_ERRORS:
        after = retry_after(getattr(response, "headers", None) or getattr(error, "headers", None), now)
        return Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK, retry_after=after)
    if status in _CLIENT_ERRORS:
        kind = ErrorType.VALIDATION if status in _INVALID_STATUS else ErrorType.UNKNOWN
        return Verdict(kind=FailureKind.PERMANENT, type=kind)
    return None


def _status(source: object) -> int | None:
    """Return an HTTP status code from the attributes libraries keep it in."""
    for name in ("status_code", "status", "code"):
        value = getattr(source, name, None)
        if type(value) is int and value in range(400, 600):
            return value
    return None


def retry_after(headers: Any, now: datetime) -> timedelta | None:
    """Return the wait a server asked for, in seconds or as a date, kept within a day."""
    try:
        text = headers["Retry-After"]
    except (KeyError, TypeError, IndexError):
        return None
    try:
        wait = timedelta(seconds=float(text))
    except (ValueError, OverflowError):
        from email.utils import parsedate_to_datetime  # a fifth of the time that `import godwit` takes

        try:
            at = parsedate_to_datetime(text)
        except (TypeError, ValueError):
            return None
        wait = (at if at.tzinfo else at.replace(tzinfo=UTC)) - now
    return min(max(wait, timedelta(0)), _LONGEST_RETRY_AFTER)


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of a message whose handler failed: `delay` until the next try, or None to give it up as `kind`."""

    delay: timedelta | None
    kind: FailureKind
    error: ProcessingError


def judge(
    error: BaseException,
    *,
    failures: int,
    policy: RetryPolicy,
    now_ms: int,
    jitter: float,
    hook: Classifier | None = None,
) -> Judgement:
    """Decide on a message after one more failure; `failures` counts those before it."""
    now = from_ms(now_ms)
    verdict = classify(error, now=now, hook=hook)
    transient = verdict.kind is FailureKind.TRANSIENT
    delay = policy.delay(attempt=failures + 1, jitter=jitter, kind=verdict.type) if transient else None
    if delay is not None and verdict.retry_after is not None:
        delay = verdict.retry_after
    kind = verdict.kind
    if delay is None and verdict.type is ErrorType.TIMEOUT:
        kind = FailureKind.EXPIRED
    record = ProcessingError(
        type=verdict.type,
        message=f"{type(error).__name__}: {error}",
        retryable=transient,
        timestamp=now,
        traceback="".join(traceback.format_exception(error)) if error.__traceback__ is not None else None,
    )
    return Judgement(delay=delay, kind=kind, error=record)
