"""Converts rows to messages; every row of a task is checked before the first one is sent.

Columns: `payload` (JSON text, or any value Spark can show as JSON) or `body` (a whole message as JSON, as journals keep
it); and, each optional, `queue`, `id`, `key`, `type`, `priority`, `ordering_key`, `group`, `attributes`, `deliver_at`,
`expires_at`, `campaign`, `schedule_id`, `replay_of`. A column wins over the same field of `body`.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from godwit.core.clock import utc_now
from godwit.core.errors import GodwitError, InvalidSetting, RowsRefused, listed
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message, Routing, Scheduling
from godwit.core.names import QueueName
from godwit.pipeline.sink.row_template import RowTemplates, uuid5

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_PLAIN: Final = ({"key", "payload"}, {"key", "payload", "type"})
_FIELDS: Final = frozenset({"type", "priority", "ordering_key", "replay_of", "expires_at", "attributes"})
_SCHEDULING: Final = ("deliver_at", "campaign", "schedule_id")
SAMPLES: Final = 5
_TEXT: Final = ("string",)
COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "payload": (),
    "body": ("binary", "string"),
    "queue": _TEXT,
    "id": _TEXT,
    "key": (),
    "type": _TEXT,
    "priority": ("byte", "short", "integer", "long"),
    "ordering_key": _TEXT,
    "group": _TEXT,
    "attributes": ("map",),
    "deliver_at": ("timestamp",),
    "expires_at": ("timestamp",),
    "campaign": _TEXT,
    "schedule_id": _TEXT,
    "replay_of": _TEXT,
}
"""The columns a sink takes, and the types they may have; an empty tuple stands for any."""

_decode = msgspec.json.Decoder().decode
_message = msgspec.json.Decoder(Message).decode
_encode = msgspec.json.Encoder(enc_hook=str, order="sorted").encode


def check_schema(schema: StructType, queue: str | None) -> None:
    """Refuse unknown columns, wrong types and missing columns, before any task starts."""
    types = {field.name: field.dataType.typeName() for field in schema}
    for name, kind in types.items():
        if name not in COLUMNS:
            raise InvalidSetting("column", name, f"one of {listed(tuple(COLUMNS))}")
        if COLUMNS[name] and kind not in COLUMNS[name]:
            raise InvalidSetting(f"type of column {name}", kind, " or ".join(COLUMNS[name]))
    if not {"payload", "body"} & types.keys():
        raise InvalidSetting("columns", ", ".join(types), "a column `payload`, or `body` with whole messages")
    if queue is None and not {"queue", "body"} & types.keys():
        raise InvalidSetting("queue", None, "a column `queue`, or the option queue")


class RowMessages:
    """The messages of one task: gathered and checked first, sealed in blocks afterwards."""

    def __init__(self, scope: str, queue: str | None, known: Collection[str], *, now: datetime | None = None) -> None:
        self._scope, self._queue, self._known = f"{scope}|", queue, known
        self._now = now or utc_now()
        self._fields: tuple[str, ...] = ()
        self._scheduling: tuple[str, ...] = ()
        self._envelopes: list[Envelope] = []
        self._templates: RowTemplates | None = None
        self._payload_kind: pa.DataType | None = None
        self.samples: list[str] = []
        self.bad = self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Check the rows of a batch and keep them."""
        names = batch.schema.names
        if set(names) in _PLAIN and self._queue in self._known and batch.num_rows:
            if self._templates is None:
                self._templates = RowTemplates(self._scope, QueueName(self._queue or ""), self._now)
            types = batch.column("type") if "type" in names else None
            sealed = self._templates.seal_rows(batch.column("key"), batch.column("payload"), types)
            if sealed is not None:
                self.rows += len(sealed)
                self._envelopes += sealed
                return
        columns = {name: batch.column(name).to_pylist() for name in names}
        if "payload" in columns:
            self._payload_kind = batch.schema.field("payload").type
        # Most tables have few of the columns there are: the others are not looked for in every row.
        self._fields = tuple(name for name in columns if name in _FIELDS)
        self._scheduling = tuple(name for name in columns if name in _SCHEDULING)
        alone = None if self._templates is None else self._templates.seal_row
        for values in _rows_of(columns, batch.num_rows):
            envelope = alone(values["key"], values["payload"], values.get("type")) if alone is not None else None
            if envelope is None:
                self._add_row(values)
            else:
                self.rows += 1
                self._envelopes.append(envelope)

    def _add_row(self, values: Mapping[str, Any]) -> None:
        self.rows += 1
        try:
            self._envelopes.append(self._sealed(values))
        except (GodwitError, msgspec.MsgspecError, ValueError, TypeError, RecursionError) as error:
            self.bad += 1
            if len(self.samples) < SAMPLES:
                shown = {name: value for name, value in values.items() if name not in ("payload", "body")}
                self.samples.append(f"{shown}: {error}")

    def drop_messages(self) -> None:
        """Drop the messages; only the refused rows are of interest."""
        self._envelopes.clear()

    def checked(self) -> Sequence[Envelope]:
        """Return all messages; raise `RowsRefused` with samples when a row cannot be one."""
        if self.bad:
            raise RowsRefused(self.bad, self.rows, tuple(self.samples))
        return self._envelopes

    def _sealed(self, values: Mapping[str, Any]) -> Envelope:
        base = _message(values["body"]) if values.get("body") is not None else None
        queue = values.get("queue") or self._queue or (base.queue if base is not None else "")
        if queue not in self._known:
            raise ValueError(f"queue {queue!r} is not declared (declared: {listed(tuple(sorted(self._known)))})")
        return seal(self._message(base, queue, values))

    def _message(self, base: Message | None, queue: str, values: Mapping[str, Any]) -> Message:
        fields: dict[str, Any] = {"id": self._id(values), "queue": queue}
        if "payload" in values:
            fields["payload"] = _payload(values["payload"], self._payload_kind)
        for name in self._fields:
            if (value := values[name]) is not None:
                fields[name] = dict(value) if name == "attributes" else value
        if values.get("group") is not None or base is not None:
            fields["routing"] = Routing(consumer_group=values.get("group"))
        scheduling = {name: values[name] for name in self._scheduling if values[name] is not None}
        if scheduling or base is not None:
            fields["scheduling"] = Scheduling(**scheduling) if scheduling else None
        return Message(created_at=self._now, **fields) if base is None else msgspec.structs.replace(base, **fields)

    def _id(self, values: Mapping[str, Any]) -> str:
        """Return a row's id: its own, or one made from its key or all its values."""
        if values.get("id") is not None:
            return str(values["id"])
        key = values.get("key")
        return uuid5(self._scope + (key if isinstance(key, str) else _encode(values if key is None else key).decode()))


def _rows_of(columns: Mapping[str, list[Any]], rows: int) -> Iterator[dict[str, Any]]:
    names = tuple(columns)
    for values in zip(*columns.values(), strict=True) if columns else iter([()] * rows):
        yield dict(zip(names, values, strict=True))


def _payload(value: Any, kind: pa.DataType | None) -> Any:
    """Return a column's value as JSON: text is JSON already, any other value is converted."""
    if value is None:
        raise ValueError("payload is null")
    if isinstance(value, str | bytes):
        return _decode(value)
    return _plain(value, kind)


def _plain(value: Any, kind: pa.DataType | None) -> Any:
    """Return a value of a column as JSON, by the column's type: an empty map looks like an empty list."""
    from pyarrow import types

    match value:
        case dict():
            return {str(key): _plain(item, kind and kind.field(key).type) for key, item in value.items()}
        case list() if kind is not None and types.is_map(kind):
            return {str(key): _plain(item, kind.item_type) for key, item in value}
        case list():
            return [_plain(item, kind and kind.value_type) for item in value]
        case bytes():
            return base64.b64encode(value).decode()  # as Spark's own JSON has it
        case datetime():
            return value.isoformat()
        case str() | int() | float() | bool() | None:
            return value
        case _:
            return str(value)
