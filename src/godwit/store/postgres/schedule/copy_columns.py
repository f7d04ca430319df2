"""Columns of Arrow as rows of COPY: thousands at once, without a Python object for any of them.

A row of COPY is its number of fields, then length and bytes of each. What has the same length in every row is laid side
by side in a matrix; Arrow joins those with what differs in length, and the joined column's memory is what is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from godwit.core.names import QueueName

SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
END: Final = b"\xff\xff"
SENT_BYTES: Final = 1 << 18
_EPOCH_US: Final = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp()) * 1_000_000
_DIGITS: Final = [place for place in range(36) if place not in (8, 13, 18, 23)]

Field: TypeAlias = bytes | np.ndarray | pa.Array
"""A value that all rows share, a matrix with a row of bytes for each, or a column of bytes of any length."""


class MessageColumns:
    """A plan's messages (`id`, a UUID as text, `key`, `deliver_at` and `message`) as fields of COPY."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.text = fixed(batch.column("id"), 36)
        digits = bytes.fromhex(self.text[:, _DIGITS].tobytes().decode())
        self.ids = np.frombuffer(digits, np.uint8).reshape(len(self.text), 16)
        instants = pc.cast(batch.column("deliver_at"), pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
        self.due = _big_endian(instants - _EPOCH_US, ">i8")
        self.key, self.message = (batch.column(name).cast(pa.binary()) for name in ("key", "message"))


def firings(campaign: str, queue: QueueName, batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return a plan's messages as rows of `schedule_firings`, by id.

    Ids are hashes. In their order each page of the index that holds them is visited once a batch.
    """
    one = MessageColumns(batch)
    made = rows([one.ids, campaign.encode(), one.key, queue.encode(), one.text, one.due, one.due, one.message])
    order = np.argsort(np.ascontiguousarray(one.ids[:, :8]).view(">u8").ravel().astype(np.uint64))
    return made.take(pa.array(order))


def staged(run_id: str, batch: pa.RecordBatch) -> pa.BinaryArray:
    """Return a plan's messages as rows of `staging_plan`."""
    one = MessageColumns(batch)
    return rows([run_id.encode(), one.ids, one.key, one.due, one.message])


def sent(made: pa.BinaryArray) -> Iterator[memoryview]:
    """Give rows as pieces of what COPY shall get, without its beginning and end."""
    offsets = np.frombuffer(made.buffers()[1], np.int32)[made.offset :]
    whole = memoryview(made.buffers()[2] or b"")[offsets[0] : offsets[len(made)]]
    for start in range(0, len(whole), SENT_BYTES):
        yield whole[start : start + SENT_BYTES]


def rows(fields: Sequence[Field]) -> pa.BinaryArray:
    """Return rows of COPY that consist of these fields."""
    size = next(len(field) for field in fields if not isinstance(field, bytes))
    joined: list[pa.Array] = []
    beside: list[bytes | np.ndarray] = [len(fields).to_bytes(2, "big")]
    for field in fields:
        if isinstance(field, pa.Array):
            beside.append(_big_endian(pc.binary_length(field).to_numpy(), ">i4"))
            joined += (_side_by_side(beside, size), field)
            beside = []
        else:
            width = len(field) if isinstance(field, bytes) else field.shape[1]
            beside += (width.to_bytes(4, "big"), field)
    if beside:
        joined.append(_side_by_side(beside, size))
    return pc.binary_join_element_wise(*joined, b"")


def fixed(column: pa.Array, width: int) -> np.ndarray:
    """Return a column whose values all have that many bytes as a matrix."""
    values = column.cast(pa.binary())
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    if values.null_count or (np.diff(offsets) != width).any():
        raise ValueError(f"a value has not {width} bytes")
    data = np.frombuffer(values.buffers()[2], np.uint8)
    return data[offsets[0] : offsets[-1]].reshape(len(values), width)


def _side_by_side(pieces: Sequence[bytes | np.ndarray], size: int) -> pa.Array:
    width = sum(len(piece) if isinstance(piece, bytes) else piece.shape[1] for piece in pieces)
    matrix, place = np.empty((size, width), np.uint8), 0
    for piece in pieces:
        taken = np.frombuffer(piece, np.uint8) if isinstance(piece, bytes) else piece
        matrix[:, place : place + taken.shape[-1]] = taken
        place += taken.shape[-1]
    offsets = np.arange(size + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.binary(), size, [None, pa.py_buffer(offsets), pa.py_buffer(matrix)])


def _big_endian(values: np.ndarray, kind: Any) -> np.ndarray:
    return values.astype(kind).view(np.uint8).reshape(len(values), -1)
