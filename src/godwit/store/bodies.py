"""What the state tables keep of a message's body, as JSON that a database takes."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, Final, NamedTuple

import msgspec

from godwit.core.clock import to_ms
from godwit.core.limits import LARGEST_COUNT, bounded_ms

DEFAULT_MAX_RETRIES: Final = 3
LONGEST_TYPE: Final = 50
_LARGEST_NUMBER: Final = 10**300
_REPLACED: Final = "\ufffd"


class _Policy(msgspec.Struct):
    max_attempts: int = DEFAULT_MAX_RETRIES + 1


class _Body(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    created_at: datetime | None = None
    retry_policy: _Policy | None = None


_decode = msgspec.json.Decoder(_Body).decode
_check_json = msgspec.json.Decoder().decode


class BodyFacts(NamedTuple):
    """Payload and metadata as JSON text."""

    payload: str
    metadata: str
    max_retries: int
    created_at_ms: int | None


_NOTHING: Final = BodyFacts("null", "{}", DEFAULT_MAX_RETRIES, None)


def facts_of(body: bytes | None, *, careful: bool = False) -> BodyFacts:
    """Read a body; `careful` changes what JSON allows but databases refuse. One that is not ours has no facts."""
    if body is None:
        return _NOTHING
    try:
        read = _decode(body)
        payload, metadata = bytes(read.payload).decode(), bytes(read.metadata).decode()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _NOTHING
    if careful or "\\u0000" in payload or "\\u0000" in metadata:
        payload, metadata = clean(payload), clean(metadata)
    return BodyFacts(
        payload,
        metadata,
        _retries(read.retry_policy.max_attempts) if read.retry_policy is not None else DEFAULT_MAX_RETRIES,
        _created_ms(read.created_at),
    )


def _created_ms(created_at: datetime | None) -> int | None:
    return None if created_at is None or created_at.tzinfo is None else bounded_ms(to_ms(created_at))


def _retries(max_attempts: int) -> int:
    return max(0, min(max_attempts, LARGEST_COUNT) - 1)


def json_text(value: bytes | None, *, careful: bool = False) -> str | None:
    """Return JSON bytes as text, such as a handler's result; what is no JSON becomes a JSON text."""
    if value is None:
        return None
    try:
        text = value.decode()
        _check_json(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return json.dumps(_text(value.decode(errors="replace")), ensure_ascii=False)
    return clean(text) if careful or "\\u0000" in text else text


def clean(text: str) -> str:
    """Return JSON that every database takes: no NUL, no lone surrogates, no numbers beyond all bounds."""
    try:
        return json.dumps(_cleaned(json.loads(text)), ensure_ascii=False)
    except (ValueError, RecursionError):
        return json.dumps(_text(text), ensure_ascii=False)


def _cleaned(value: Any) -> Any:
    match value:
        case str():
            return _text(value)
        case bool() | None:
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case int():
            return value if abs(value) < _LARGEST_NUMBER else "out of range"
        case list():
            return [_cleaned(item) for item in value]
        case _:
            return {_text(key): _cleaned(item) for key, item in value.items()}


def without_nul(value: Any) -> Any:
    """Return a value as PostgreSQL takes it."""
    return value.replace("\0", _REPLACED) if isinstance(value, str) else value


def _text(value: str) -> str:
    return value.replace("\0", _REPLACED).encode("utf-8", "replace").decode()


class SpecFacts(msgspec.Struct):
    """What the tables keep in columns of a queue's settings."""

    type: str = "standard"
    priority: int = 0


def spec_facts(spec: bytes) -> SpecFacts:
    """Read the settings a queue was declared with; of settings that cannot be read, the usual ones."""
    try:
        facts = msgspec.json.decode(spec, type=SpecFacts)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return SpecFacts()
    return SpecFacts(_text(facts.type)[:LONGEST_TYPE], max(-LARGEST_COUNT, min(facts.priority, LARGEST_COUNT)))
