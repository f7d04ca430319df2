from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from godwit.core.errors import JournalDamaged
from godwit.core.journal.chunks import decode_chunk, encode_chunk, rows_of
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.pipeline.source.decoder import ChunkDecoder
from godwit.pipeline.source.schema import arrow_schema, columns, journal_schema
from tests.pipeline.journals import row

SHARD = "orders#0"
AT = 1_750_000_000_123
SAMPLES: dict[str, Any] = {
    "string": "text", "long": 1 << 40, "integer": 7, "timestamp": AT, "binary": b"\x00bytes",
}  # fmt: skip


def decoded(chunks: list[bytes], after: int = 0, until: int = 1 << 40, schema: pa.Schema | None = None) -> pa.Table:
    schema = arrow_schema(journal_schema()) if schema is None else schema
    decoder = ChunkDecoder(schema, SHARD, batch_rows=3)
    found = []
    for chunk in chunks:
        decoder.add([chunk], after, until)
        found += list(decoder.complete())
    return pa.Table.from_batches([*found, *decoder.remaining()], schema).sort_by("seq")


def full_row(event: Event) -> list[Any]:
    types = {field.name: field.dataType.typeName() for field in journal_schema()}
    return [SAMPLES[types[name]] for name in LAYOUTS[event]]


def as_arrow_shows(named: dict[str, Any]) -> dict[str, Any]:
    times = {"at", "ready_at", "deliver_at", "expires_at", "lease_until"}
    complete = dict.fromkeys(journal_schema().names) | named
    return {
        name: datetime.fromtimestamp(value / 1000, UTC).replace(microsecond=value % 1000 * 1000)
        if name in times and value is not None
        else value
        for name, value in complete.items()
    }


@pytest.mark.parametrize("event", list(Event))
def test_every_event_arrives_as_the_journal_reader_names_it(event: Event) -> None:
    rows = [full_row(event), [None] * len(LAYOUTS[event])]
    chunk = encode_chunk("e", 5, AT, event, "orders", "g", None, 3, rows)
    expected = [as_arrow_shows(named) for named in rows_of(decode_chunk(chunk), SHARD)]
    assert decoded([chunk]).to_pylist() == expected


def test_chunks_of_several_events_and_groups_keep_their_headers() -> None:
    chunks = [
        encode_chunk("e", 1, AT, Event.ENQUEUED, "orders", "a", None, 2, [full_row(Event.ENQUEUED)] * 2),
        encode_chunk("e", 3, AT + 5, Event.ENQUEUED, "orders", "b", None, 4, [full_row(Event.ENQUEUED)] * 2),
        encode_chunk("e", 5, AT + 9, Event.ACKED, "orders", None, "w", None, [full_row(Event.ACKED)]),
    ]
    table = decoded(chunks, schema=arrow_schema(columns("seq", "group", "worker", "depth", "event", "shard")))
    assert [tuple(found.values()) for found in table.to_pylist()] == [
        (1, "a", None, 2, "enqueued", SHARD),
        (2, "a", None, 2, "enqueued", SHARD),
        (3, "b", None, 4, "enqueued", SHARD),
        (4, "b", None, 4, "enqueued", SHARD),
        (5, None, "w", None, "acked", SHARD),
    ]


def test_a_range_may_begin_and_end_inside_chunks() -> None:
    rows = [row(Event.DUPLICATE, message_id=f"m{number}") for number in range(1, 11)]
    chunks = [
        encode_chunk("e", 1, AT, Event.DUPLICATE, "orders", None, None, None, rows[:5]),
        encode_chunk("e", 6, AT, Event.DUPLICATE, "orders", None, None, None, rows[5:]),
    ]
    table = decoded(chunks, after=3, until=7)
    assert table["seq"].to_pylist() == [4, 5, 6, 7]
    assert table["message_id"].to_pylist() == ["m4", "m5", "m6", "m7"]


@pytest.mark.parametrize("after", range(12))
def test_every_range_of_chunks_has_its_rows_and_no_others(after: int) -> None:
    # As a compact chunk of Redis is written out: the same messages for one group after the other.
    rows = [row(Event.ENQUEUED, message_id=f"m{number}") for number in range(4)]
    chunks = [
        encode_chunk("e", 1 + 4 * copy, AT, Event.ENQUEUED, "orders", group, None, 4, rows)
        for copy, group in enumerate(("a", "b", "c"))
    ]
    schema = arrow_schema(columns("seq", "group", "message_id"))
    whole = [(1 + 4 * copy + place, group, f"m{place}") for copy, group in enumerate("abc") for place in range(4)]
    for until in range(after + 1, 13):
        table = decoded(chunks, after, until, schema)
        assert [tuple(found.values()) for found in table.to_pylist()] == whole[after:until], until


def test_rows_of_older_and_newer_versions_stand_side_by_side() -> None:
    long = [*full_row(Event.DUPLICATE), "a field of a later version"]
    chunks = [
        encode_chunk("e", 1, AT, Event.ENQUEUED, "orders", "g", None, 1, [["m1", 1, 0, 1]]),
        encode_chunk("e", 2, AT, Event.ENQUEUED, "orders", "g", None, 1, [full_row(Event.ENQUEUED)]),
        encode_chunk("e", 3, AT, Event.DUPLICATE, "orders", "g", None, 1, [long]),
    ]
    table = decoded(chunks)
    assert table["copies"].to_pylist() == [1, 7, None]
    assert table["type"].to_pylist() == [None, "text", None]
    assert table["message_id"].to_pylist() == ["m1", "text", "text"]


def test_rows_of_unequal_length_in_one_chunk_are_filled_with_null() -> None:
    rows = [full_row(Event.ENQUEUED), ["m2", 2]]
    table = decoded([encode_chunk("e", 1, AT, Event.ENQUEUED, "orders", "g", None, 1, rows)])
    assert table["copies"].to_pylist() == [7, None]


def test_an_event_of_a_newer_version_keeps_its_header() -> None:
    chunk = encode_chunk("e", 1, AT, "teleported", "orders", "g", None, 1, [["m1"]])  # type: ignore[arg-type]
    (found,) = decoded([chunk]).to_pylist()
    assert (found["event"], found["group"], found["message_id"]) == ("teleported", "g", None)


@pytest.mark.parametrize(
    "chunk",
    [
        b"\xff\x00 no chunk",
        encode_chunk("e", 1, AT, Event.ENQUEUED, "orders", "g", None, 1, [["m", "not a number"]]),
    ],
    ids=["not MessagePack", "wrong type"],
)
def test_a_damaged_chunk_is_named(chunk: bytes) -> None:
    with pytest.raises(JournalDamaged, match="orders#0"):
        decoded([chunk])
