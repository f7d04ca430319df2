"""What can go wrong with a message, and how one failure is recognised as the same as another."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from godwit.core.clock import from_ms
from godwit.core.error_text import clean, value_text
from godwit.core.limits import EARLIEST_MS, bounded_instant

HISTORY_LENGTH = 20
"""Errors kept with a message: the first one and the newest; older ones in between make room."""

MESSAGE_CHARACTERS = 2_000
TRACEBACK_CHARACTERS = 8_000

_VARYING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8}-[0-9a-f-]{27}|\d+|'[^']*'|\"[^\"]*\"", re.IGNORECASE)


class FailureKind(StrEnum):
    """Why a message became a dead letter."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    POISON = "poison"
    EXPIRED = "expired"


class ErrorType(StrEnum):
    """What sort of error a handler met."""

    NETWORK = "network"
    VALIDATION = "validation"
    TIMEOUT = "timeout"
    POSTPONED = "postponed"
    UNKNOWN = "unknown"


class Away(StrEnum):
    """How an error says that what a handler needs, its downstream, is away. `away` is its own word for it."""

    NETWORK = "network"
    TIMEOUT = "timeout"
    SERVER_ERROR = "5xx"
    RATE_LIMIT = "429"
    AWAY = "away"


class ProcessingError(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A failed attempt, as kept in a message's history."""

    type: ErrorType = ErrorType.UNKNOWN
    message: str
    retryable: bool = True
    timestamp: Annotated[datetime, msgspec.Meta(tz=True)]
    traceback: str | None = None

    @property
    def fingerprint(self) -> str:
        """A short id that is equal for errors that differ only in numbers, ids and quoted values."""
        return fingerprint(self.type, self.message)


def fingerprint(kind: str, message: str) -> str:
    """Return 12 hex digits for the shape of an error message."""
    shape = _VARYING.sub("*", message[:MESSAGE_CHARACTERS])
    return blake2b(f"{kind}:{shape}".encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def carried(error: ProcessingError) -> ProcessingError:
    """Return an error as every broker, store and journal can carry it, whatever an application put into its fields."""
    message, traceback = _text(error.message), error.traceback
    if traceback is not None:
        traceback = clean(_text(traceback)[-TRACEBACK_CHARACTERS:], limit=TRACEBACK_CHARACTERS)[-TRACEBACK_CHARACTERS:]
    return msgspec.structs.replace(
        error,
        type=error.type if isinstance(error.type, ErrorType) else ErrorType.UNKNOWN,
        message=clean(message, limit=MESSAGE_CHARACTERS)[:MESSAGE_CHARACTERS],
        retryable=bool(error.retryable),
        timestamp=_instant(error.timestamp),
        traceback=traceback,
    )


def _text(value: Any) -> str:
    return value if type(value) is str else value_text(value)


def _instant(value: Any) -> datetime:
    """Return an instant within the limits; one without a zone is in UTC, what is no instant long past."""
    if isinstance(value, datetime):
        try:
            return bounded_instant(value if value.utcoffset() is not None else value.replace(tzinfo=UTC))
        except Exception:  # noqa: BLE001, S110 - whatever a zone of the application's own does
            pass
    return from_ms(EARLIEST_MS)


def remembered(history: tuple[ProcessingError, ...], error: ProcessingError | None) -> tuple[ProcessingError, ...]:
    """Return the history with `error` added, shortened so that it cannot grow without bound."""
    if error is None:
        return history
    error = msgspec.structs.replace(
        error,
        message=error.message[:MESSAGE_CHARACTERS],
        traceback=error.traceback[-TRACEBACK_CHARACTERS:] if error.traceback else None,
    )
    if len(history) < HISTORY_LENGTH:
        return (*history, error)
    return (history[0], *history[2:], error)
