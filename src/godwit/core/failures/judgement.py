"""What a handler's end means: errors are classified by type and code, and turned into a settlement."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import msgspec

from godwit.core.clock import from_ms
from godwit.core.error_text import error_text, traceback_text, type_name
from godwit.core.errors import InvalidMessage
from godwit.core.failures.failure import Away, ErrorType, FailureKind, ProcessingError
from godwit.core.failures.retry import RetryPolicy
from godwit.core.limits import as_duration


class Retry(Exception):
    """Raised by a handler for a message whose time has not come: it is postponed by `after`, which is no failure.

    `after` is a duration or a number of seconds. Without it the retry policy says when, and counts this as a failure.
    """

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        self.reason = reason
        self.after = None if after is None else as_duration("after", after)
        super().__init__(reason)

    def __reduce__(self) -> tuple[Callable[..., Retry], tuple[type[Retry], str, timedelta | None]]:
        """Keep `after` when pickled."""
        return (_retry, (type(self), self.reason, self.after))


def _retry(kind: type[Retry], reason: str, after: timedelta | None) -> Retry:
    return kind(reason, after=after)


class RateLimited(Retry):
    """Raised by a handler whose downstream takes nothing more until `after` has passed.

    The message is postponed, and no worker pulls from its queue for its group until then.
    """

    def __init__(self, reason: str = "", *, after: timedelta | float) -> None:
        super().__init__(reason, after=after)


class DownstreamAway(Exception):
    """Raised by a handler that knows its downstream to be away: a failure that counts for the circuit breaker."""


class Permanent(Exception):
    """Raised by a handler that can never handle the message: it becomes a dead letter at once."""


class BatchFailed(Exception):
    """Raised by a batch handler to say which messages failed, by their place in the batch; the others are done."""

    def __init__(self, errors: dict[int, BaseException]) -> None:
        self.errors = errors
        super().__init__(errors)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What an error means for the message: transient ones are tried again, permanent ones are not.

    `postpone` lets the message come again after `retry_after` without counting a failure. `away` says that the
    downstream is away, which is what a circuit breaker counts.
    """

    kind: FailureKind
    type: ErrorType = ErrorType.UNKNOWN
    retry_after: timedelta | None = None
    postpone: bool = False
    away: Away | None = None


Classifier = Callable[[BaseException], Verdict | None]
"""An application's own judgement; None leaves the error to the rules here."""

_TRANSIENT_STATUS: Final = frozenset({408, 425, 429})
_CONFLICT: Final = 409
_SMTP_UNAVAILABLE: Final = 421
_AWAY_STATUS: Final = {408: Away.TIMEOUT, 429: Away.RATE_LIMIT}
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
_SLOW: Final = Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.TIMEOUT, away=Away.TIMEOUT)
_UNREACHABLE: Final = Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK, away=Away.NETWORK)
_AWAY: Final = Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK, away=Away.AWAY)

_BY_TYPE: Final[tuple[tuple[tuple[type[BaseException], ...], Verdict], ...]] = (
    ((Permanent,), Verdict(kind=FailureKind.PERMANENT)),
    ((DownstreamAway,), _AWAY),
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
        return Verdict(kind=FailureKind.TRANSIENT, retry_after=error.after, postpone=error.after is not None)
    for types, verdict in _BY_TYPE:
        if isinstance(error, types):
            return verdict
    names = [base.__name__ for base in type(error).__mro__]
    return next((verdict for shape, verdict in _BY_NAME if any(map(shape.fullmatch, names))), None)


def _by_status(error: BaseException, now: datetime) -> Verdict | None:
    if any(base.__name__.startswith("SMTP") for base in type(error).__mro__):
        return _by_smtp_codes(_smtp_codes(error))
    response = getattr(error, "response", None)
    status = _status(error) or _status(response)
    if status is None:
        return None
    after = retry_after(getattr(response, "headers", None) or getattr(error, "headers", None), now)
    if status in _TRANSIENT_STATUS or status in _SERVER_ERRORS:
        away = Away.SERVER_ERROR if status in _SERVER_ERRORS else _AWAY_STATUS.get(status)
        return Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK, retry_after=after, away=away)
    if status == _CONFLICT and after is not None:  # the same idempotency key is being served
        return Verdict(kind=FailureKind.TRANSIENT, retry_after=after)
    if status in _CLIENT_ERRORS:
        kind = ErrorType.VALIDATION if status in _INVALID_STATUS else ErrorType.UNKNOWN
        return Verdict(kind=FailureKind.PERMANENT, type=kind)
    return None


def _smtp_codes(error: BaseException) -> list[object]:
    """Return the codes of an error of smtplib (`smtp_code`) or aiosmtplib (`code`), or those of its recipients."""
    refused = getattr(error, "recipients", None)
    if isinstance(refused, dict):
        return [answer[0] for answer in refused.values() if isinstance(answer, tuple) and answer]
    if isinstance(refused, list | tuple):
        return [getattr(one, "code", None) for one in refused]
    return [getattr(error, "smtp_code", getattr(error, "code", None))]


def _by_smtp_codes(codes: list[object]) -> Verdict | None:
    """Judge by the codes of SMTP, where 4xx means later and 5xx never; one recipient to be tried again is enough."""
    known = [code for code in codes if isinstance(code, int)]
    if any(code in _CLIENT_ERRORS for code in known):
        away = Away.AWAY if _SMTP_UNAVAILABLE in known else None
        return Verdict(kind=FailureKind.TRANSIENT, type=ErrorType.NETWORK, away=away)
    if any(code in _SERVER_ERRORS for code in known):
        return Verdict(kind=FailureKind.PERMANENT, type=ErrorType.NETWORK)
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
    """What becomes of a message whose handler failed: `delay` until the next try, or None to give it up as `kind`.

    A postponed one comes again without a failure being counted; `pause` is how long its whole group waits with it.
    """

    delay: timedelta | None
    kind: FailureKind
    error: ProcessingError
    postponed: bool = False
    pause: timedelta | None = None


Excuse = Callable[[Away | None], timedelta | None]
"""Takes what an error says of the downstream; returns a delay when the message is not to blame for it."""


def judge(
    error: BaseException,
    *,
    failures: int,
    policy: RetryPolicy,
    now_ms: int,
    jitter: float,
    hook: Classifier | None = None,
    postponements: int = 0,
    errors: tuple[ProcessingError, ...] = (),
    excuse: Excuse = lambda _: None,
) -> Judgement:
    """Decide on a message after one more failure; `failures`, `postponements` and `errors` are those before it."""
    now = from_ms(now_ms)
    verdict = _verdict(error, now, hook)
    transient = verdict.kind is FailureKind.TRANSIENT
    excused = excuse(verdict.away)
    since = _postponed_since(errors) if postponements else None
    may_postpone = policy.may_postpone(postponements=postponements, since=since, now=now)
    if verdict.postpone or (excused is not None and transient and may_postpone):
        wait = verdict.retry_after or excused or timedelta(0)
        pause = verdict.retry_after if isinstance(error, RateLimited) else None
        text = f"{type_name(error)}: {error_text(error)}"
        if may_postpone:
            record = ProcessingError(type=ErrorType.POSTPONED, message=text, timestamp=now)
            return Judgement(delay=wait, kind=FailureKind.TRANSIENT, error=record, postponed=True, pause=pause)
        text = f"postponed {postponements:,} times since {since or now}, which is the limit: {text}"
        record = ProcessingError(type=ErrorType.POSTPONED, message=text, timestamp=now)
        return Judgement(delay=None, kind=FailureKind.TRANSIENT, error=record, pause=pause)
    delay = policy.delay(attempt=failures + 1, jitter=jitter, kind=verdict.type) if transient else None
    if delay is not None and verdict.retry_after is not None:
        delay = verdict.retry_after
    kind = verdict.kind
    if delay is None and verdict.type is ErrorType.TIMEOUT:
        kind = FailureKind.EXPIRED
    record = ProcessingError(
        type=verdict.type,
        message=f"{type_name(error)}: {error_text(error)}",
        retryable=transient,
        timestamp=now,
        traceback=traceback_text(error) if error.__traceback__ is not None else None,
    )
    return Judgement(delay=delay, kind=kind, error=record)


def _verdict(error: BaseException, now: datetime, hook: Classifier | None) -> Verdict:
    """Classify an error; one whose attributes, or whose application's hook, raise is tried again like any other."""
    try:
        return _within_limits(classify(error, now=now, hook=hook))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as second:  # noqa: BLE001 - an error while judging an error must not leave its message unsettled
        from godwit.core.logs import get_logger  # a tenth of the time that `import godwit` takes

        get_logger(__name__).warning("a failure could not be judged", error=type_name(error), reason=error_text(second))
        return Verdict(kind=FailureKind.TRANSIENT)


def _within_limits(verdict: Verdict) -> Verdict:
    """Return a verdict, which may be an application's own, as every broker takes it; raises for one that is none."""
    kind, wait = FailureKind(verdict.kind), verdict.retry_after
    if wait is None and kind is verdict.kind:
        return verdict
    return msgspec.structs.replace(
        verdict, kind=kind, retry_after=None if wait is None else as_duration("retry_after", wait)
    )


def unjudged(error: BaseException, *, failures: int, now: datetime) -> Judgement:
    """Return what becomes of a message whose failure cannot be judged: it is tried again as without a policy."""
    delay = RetryPolicy().delay(attempt=failures + 1)
    return Judgement(
        delay=delay,
        kind=FailureKind.TRANSIENT,
        error=ProcessingError(message=f"{type_name(error)}: {error_text(error)}", timestamp=now),
    )


def _postponed_since(errors: tuple[ProcessingError, ...]) -> datetime | None:
    """Return when a message was first postponed since it was published or replayed: only the first time is recorded."""
    return next((error.timestamp for error in reversed(errors) if error.type is ErrorType.POSTPONED), None)
