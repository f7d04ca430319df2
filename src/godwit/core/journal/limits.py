"""What a row of the journal may hold, so that every store can take it and every reader can read it again.

A journal may come from another version or another program. Nearly every row is as it should be, and `fitting` sees that
for all rows of a chunk in one call of C; only a row that is not is looked at field by field.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.core.limits import LARGEST_COUNT, LATEST_MS

LARGEST_SEQ: Final = 2**63 - 1
LONGEST_ID: Final = 255
LONGEST_TYPE: Final = 100
LONGEST_KIND: Final = 20
LONGEST_FINGERPRINT: Final = 64
LONGEST_DELIVERY_ID: Final = 1_000

_Id = Annotated[str, Meta(min_length=1, max_length=LONGEST_ID)]
_Seq = Annotated[int, Meta(ge=0, le=LARGEST_SEQ)]
_Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
_Number = Annotated[int, Meta(ge=-LARGEST_COUNT, le=LARGEST_COUNT)]
_Instant = Annotated[int, Meta(ge=0, le=LATEST_MS)]
_Type = Annotated[str, Meta(max_length=LONGEST_TYPE)]
_Kind = Annotated[str, Meta(max_length=LONGEST_KIND)]
_Fingerprint = Annotated[str, Meta(max_length=LONGEST_FINGERPRINT)]
_DeliveryId = Annotated[str, Meta(max_length=LONGEST_DELIVERY_ID)]

_TYPES: Final[dict[str, Any]] = {
    "message_id": _Id,
    "publish_seq": _Seq,
    "former_seq": _Seq,
    "delivery_id": _DeliveryId | None,
    "attempt": _Count,
    "failures": _Count,
    "crashes": _Count,
    "copies": _Count | None,
    "run_ms": _Count | None,
    "priority": _Number,
    "ready_at": _Instant | None,
    "deliver_at": _Instant | None,
    "expires_at": _Instant | None,
    "lease_until": _Instant | None,
    "type": _Type | None,
    "error_kind": _Kind | None,
    "error_fingerprint": _Fingerprint | None,
    "body": bytes | None,
    "result": bytes | None,
}
_NOT_KEPT: Final = frozenset({
    Event.QUEUE_REMOVED, Event.GROUP_REMOVED, Event.PURGED, Event.ACK_REFUSED, Event.DROPPED, Event.DUPLICATE,
})  # fmt: skip
"""Events of whose rows no field gets into the tables."""
_SINCE_THE_FIRST_LAYOUT: Final = ("message_id", "publish_seq", "delivery_id", "attempt", "failures", "crashes")


class UnusableRow(Exception):
    """A row does not say which message it is about."""


def fitting(event: Event, rows: list[list[Any]], refuse: Callable[[str], None]) -> list[list[Any]]:
    """Return the rows with every value inside its limits; one that cannot be used is left out and `refuse` told why."""
    checked = _CHECKED.get(event)
    if checked is None:
        return rows
    try:
        msgspec.convert(rows, checked, builtin_types=(bytes,))
    except (msgspec.ValidationError, OverflowError):
        return _mended(event, rows, refuse)
    return rows


def _mended(event: Event, rows: list[list[Any]], refuse: Callable[[str], None]) -> list[list[Any]]:
    found = []
    for row in rows:
        try:
            found.append(_mended_row(LAYOUTS[event], row))
        except UnusableRow as error:
            refuse(f"{event.value}: {error}")
    return found


def _mended_row(layout: Sequence[str], row: list[Any]) -> list[Any]:
    known = row + [None] * (len(layout) - len(row))
    return [_MENDERS[name](value) if name in _MENDERS else value for name, value in zip(layout, known, strict=False)]


def _message_id(value: Any) -> str:
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and "\0" not in value:
        return value
    raise UnusableRow("its message id cannot be one")


def _seq(value: Any) -> int:
    if isinstance(value, int) and 0 <= value <= LARGEST_SEQ:
        return value
    raise UnusableRow("its publish_seq cannot be one")


def _whole(value: Any) -> int | None:
    """Return a number as a whole one; what is none, and no such number, is missing."""
    if isinstance(value, float) and value == value and abs(value) != float("inf"):  # noqa: PLR0124 (not a number)
        return int(value)
    return int(value) if isinstance(value, int) else None


def _between(least: int, most: int, missing: int | None) -> Callable[[Any], int | None]:
    def mend(value: Any) -> int | None:
        whole = _whole(value)
        return missing if whole is None else max(least, min(whole, most))

    return mend


def _text(longest: int) -> Callable[[Any], str | None]:
    return lambda value: value[:longest] if isinstance(value, str) else None


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value if isinstance(value, bytes) else None


_MENDERS: Final[dict[str, Callable[[Any], Any]]] = {
    "message_id": _message_id,
    "publish_seq": _seq,
    "former_seq": _seq,
    "delivery_id": _text(LONGEST_DELIVERY_ID),
    **dict.fromkeys(("attempt", "failures", "crashes"), _between(0, LARGEST_COUNT, 0)),
    **dict.fromkeys(("copies", "run_ms"), _between(0, LARGEST_COUNT, None)),
    "priority": _between(-LARGEST_COUNT, LARGEST_COUNT, 0),
    **dict.fromkeys(("ready_at", "deliver_at", "expires_at", "lease_until"), _between(0, LATEST_MS, None)),
    "type": _text(LONGEST_TYPE),
    "error_kind": _text(LONGEST_KIND),
    "error_fingerprint": _text(LONGEST_FINGERPRINT),
    "body": _bytes,
    "result": _bytes,
}


def _checked_rows(event: Event) -> Any:
    layout = LAYOUTS[event]
    since_first = layout if event is Event.REPLAYED else _SINCE_THE_FIRST_LAYOUT
    fields: list[Any] = [
        (name, _TYPES.get(name, Any)) if name in since_first else (name, _TYPES.get(name, Any) | None, None)
        for name in layout
    ]
    return list[msgspec.defstruct(event.value, fields, array_like=True, gc=False)]  # type: ignore[misc]


_CHECKED: Final = {event: _checked_rows(event) for event in Event if event not in _NOT_KEPT}
