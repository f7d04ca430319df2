"""Seals messages that differ only in id and payload: once per type, then filled in per row.

Rows are sealed together when none of them is unusual; otherwise each is sealed alone.
"""

from __future__ import annotations

import hashlib
import uuid
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec

from godwit.core.clock import to_ms
from godwit.core.errors import GodwitError
from godwit.core.messages.checks import MAX_MESSAGE_BYTES, MAX_PAYLOAD_DEPTH, check_payload
from godwit.core.messages.envelope import Envelope, seal
from godwit.core.messages.message import Message
from godwit.core.names import UUID_VARIANT, QueueName

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE: Final = uuid.UUID("6f64b0f7-6d0c-5f0e-9a55-60d317000001")
_NAMESPACE: Final = NAMESPACE.bytes
_ID: Final = "00000000-0000-5000-8000-000000000000"
_PAYLOAD: Final = {"payload goes": "here"}
"""No queue or type can look like it."""
_TYPE: Final = "message"
_NOTHING: Final = b"null"
_MOST_TYPES: Final = 1_000

_ODD: Final = (GodwitError, msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
_decode = msgspec.json.Decoder().decode
_encoder = msgspec.json.Encoder()
_encode = _encoder.encode


class RowTemplates:
    """The templates of one scope and queue; ids are made from keys."""

    def __init__(self, scope: str, queue: QueueName, now: datetime) -> None:
        self._named = _NAMESPACE + scope.encode()
        self._hash = hashlib.sha1(self._named, usedforsecurity=False)
        self._queue, self._now, self._now_ms = queue, now, to_ms(now)
        self._around: dict[str, tuple[bytes, bytes, bytes]] = {}

    def seal_row(self, key: Any, payload: Any, kind: str | None) -> Envelope | None:
        """Return a row's message as `seal` makes it; None when the row needs the general way."""
        if type(key) is not str or type(payload) is not str:
            return None
        kind = _TYPE if kind is None else kind
        try:
            decoded = _decode(payload)
            if decoded is None:
                return None  # a message leaves out a payload of nothing
            check_payload(decoded)
            written = _encode(decoded)
            before, between, behind = self._around.get(kind) or self._made(kind)
            id_hash = self._hash.copy()
            id_hash.update(key.encode())
        except _ODD:
            return None
        id_ = _uuid_text(id_hash.digest())
        body = b"%b%b%b%b%b" % (before, id_.encode(), between, written, behind)
        size = len(body)
        return None if size > MAX_MESSAGE_BYTES else Envelope(id_, self._queue, body, size, self._now_ms, kind)

    def seal_rows(self, keys: pa.Array, payloads: pa.Array, types: pa.Array | None) -> list[Envelope] | None:
        """Return the messages of many rows as `seal` makes them; None when a row needs the general way."""
        if not (_is_text_column(keys) and _is_text_column(payloads) and _is_shallow(payloads)):
            return None
        from godwit.pipeline.sink import uuid_text

        kinds = [_TYPE if kind is None else kind for kind in ([None] if types is None else types.to_pylist())]
        try:
            around = {kind: self._around.get(kind) or self._made(kind) for kind in set(kinds)}
            written = _encoder.encode_lines(list(map(_decode, payloads.to_pylist()))).split(b"\n")[:-1]
        except _ODD:
            return None
        if _NOTHING in written:
            return None
        texts = uuid_text.uuid5_texts(self._digests(keys))
        if len(around) == 1:
            ((before, between, behind),) = around.values()
            heads = uuid_text.surround(before, texts, between)
            bodies = [head + payload + behind for head, payload in zip(heads, written, strict=True)]
            kinds = kinds[:1] * len(bodies)
        else:
            pieces = zip(map(around.__getitem__, kinds), uuid_text.surround(b"", texts, b""), written, strict=True)
            bodies = [around[0] + id_ + around[1] + payload + around[2] for around, id_, payload in pieces]
        sizes = list(map(len, bodies))
        if max(sizes) > MAX_MESSAGE_BYTES:
            return None
        queue, now_ms, ids = self._queue, self._now_ms, uuid_text.as_strings(texts)
        return [
            Envelope(id_, queue, body, size, now_ms, kind)
            for id_, body, size, kind in zip(ids, bodies, sizes, kinds, strict=True)
        ]

    def _digests(self, keys: pa.Array) -> list[bytes]:
        named, sha1 = self._named, hashlib.sha1
        return [sha1(named + key, usedforsecurity=False).digest() for key in keys.cast("binary").to_pylist()]

    def _made(self, kind: str) -> tuple[bytes, bytes, bytes]:
        """Return the bytes around id and payload in messages of a type."""
        whole = seal(Message(id=_ID, queue=self._queue, type=kind, payload=_PAYLOAD, created_at=self._now))
        before, _, rest = whole.body.partition(_ID.encode())
        between, _, behind = rest.partition(_encode(_PAYLOAD))
        if len(self._around) < _MOST_TYPES:
            self._around[kind] = before, between, behind
        return before, between, behind


def uuid5(name: str) -> str:
    """Return `uuid.uuid5(NAMESPACE, name)` as text, in a third of the time."""
    return _uuid_text(hashlib.sha1(_NAMESPACE + name.encode(), usedforsecurity=False).digest())


def _uuid_text(digest: bytes) -> str:
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{UUID_VARIANT[text[16]]}{text[17:20]}-{text[20:32]}"


def _is_text_column(column: pa.Array) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(column.type)) and column.null_count == 0


def _is_shallow(payloads: pa.Array) -> bool:
    """Say whether no payload can be nested too deep, counting the characters that open a level."""
    import pyarrow.compute as pc

    opened = pc.add(pc.count_substring(payloads, "{"), pc.count_substring(payloads, "["))
    return bool(pc.max(opened).as_py() <= MAX_PAYLOAD_DEPTH)
