"""Columns cut out of bytes are those that decoding row by row gives, whatever the bytes are."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from godwit.core.journal.chunks import encode_chunk
from godwit.core.journal.vocabulary import LAYOUTS, Event
from godwit.pipeline.source.column_decoder import batch_of
from godwit.pipeline.source.msgpack_values import MsgpackValues, Unexpected
from godwit.pipeline.source.row_decoder import RowDecoder
from godwit.pipeline.source.schema import arrow_schema, columns, journal_schema
from tests.pipeline.journals import random_history

SHARD = "orders#0"
SCHEMA = arrow_schema(journal_schema())
WIDE = 1 << 40
TYPES = {field.name: field.dataType.typeName() for field in journal_schema()}
NUMBERS = st.sampled_from(
    [0, 1, 0x7F, 0x80, 0x9D, 0xA0, 0xFF, 0x100, 0xDC10, 0xFFFF, 1 << 16, (1 << 31) - 1, -1, -32, -33, -129, -(1 << 31)]
)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "integer": NUMBERS,
    "long": NUMBERS | st.integers(-(2**63), 2**63 - 1),
    "timestamp": st.integers(-(2**40), 2**43),
    "string": st.text(max_size=40) | st.text("\u201d\x1d\u0710", max_size=300),
    "binary": st.binary(max_size=40) | st.binary(min_size=250, max_size=300) | st.just(b"\x9d\xa1m\xdc\x00\x10" * 9),
}

NAMES = st.none() | st.text(max_size=40) | st.text(min_size=250, max_size=300)


@st.composite
def histories(draw: st.DrawFn) -> list[bytes]:
    """Give chunks of awkward rows: bytes inside them look like beginnings of rows."""
    chunks, seq = [], 1
    for _ in range(draw(st.integers(1, 6))):
        event = draw(st.sampled_from(list(Event)))
        fields = [VALUES[TYPES[name]] for name in LAYOUTS[event]]
        rows = draw(st.lists(st.tuples(*(st.none() | field for field in fields)), min_size=1, max_size=20))
        group, worker = draw(st.none() | st.just("g")), draw(st.none() | st.text(max_size=40))
        depth = draw(st.none() | st.integers(0, 2**40))
        at_ms, *ending = draw(st.integers(0, 2**42)), draw(NAMES), draw(NAMES)
        chunks.append(encode_chunk("e", seq, at_ms, event, "orders", group, worker, depth, rows, *ending))
        seq += len(rows)
    return chunks


def row_by_row(chunks: list[bytes], after: int, until: int, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(list(RowDecoder(schema, SHARD).batches(chunks, after, until)), schema)


@settings(max_examples=60)
@given(histories(), st.integers(0, 30), st.integers(30, 200))
def test_both_ways_give_the_same_rows(chunks: list[bytes], after: int, until: int) -> None:
    try:
        found = batch_of(chunks, SCHEMA, SHARD, after, until)
    except Unexpected:
        return  # bytes that look like rows in every respect are left to the other way
    found.validate(full=True)
    assert pa.Table.from_batches([found]).sort_by("seq").equals(row_by_row(chunks, after, until, SCHEMA).sort_by("seq"))


def test_a_long_history_needs_no_second_look() -> None:
    history = random_history(["orders"], 20_000, seed=3)
    chunks, seq = [], 1
    for _, at_ms, event, group, depth, rows in history:
        chunks.append(encode_chunk("e", seq, at_ms, event, "orders", group, "w", depth, rows))
        seq += len(rows)
    found = pa.Table.from_batches([batch_of(chunks, SCHEMA, SHARD, 0, WIDE)])
    assert found.sort_by("seq").equals(row_by_row(chunks, 0, WIDE, SCHEMA).sort_by("seq"))


def test_columns_that_nobody_asked_for_are_left_out() -> None:
    chance = Random(1)
    rows = [[f"m{chance.random()}", chance.randrange(1 << 33)] for _ in range(1_000)]
    chunks = [encode_chunk("e", 1, 5, Event.CANCELLED, "orders", None, None, None, rows)]
    schema = arrow_schema(columns("publish_seq", "queue"))
    found = batch_of(chunks, schema, SHARD, 0, WIDE)
    assert found.to_pydict() == {"publish_seq": [row[1] for row in rows], "queue": ["orders"] * 1_000}


@pytest.mark.parametrize(
    "rows",
    [
        [["m", 1], ["m"]],
        [["m", 1.5]],
        [["m", 1 << 63]],
        [["m", True]],
        [["m", [1]]],
        [["m", "1"]],
        [[b"m", 1]],
        [],
    ],
    ids=["unequal", "fraction", "too large", "truth", "list", "text as number", "bytes as text", "empty"],
)
def test_what_only_decoding_can_tell_is_left_to_it(rows: list[list[Any]]) -> None:
    chunk = encode_chunk("e", 1, 5, Event.CANCELLED, "orders", None, None, None, rows)
    with pytest.raises(Unexpected):
        batch_of([chunk], SCHEMA, SHARD, 0, WIDE)


def test_text_that_is_none_is_left_to_the_decoder_which_names_it() -> None:
    chunk = encode_chunk("e", 1, 5, Event.DUPLICATE, "orders", None, None, None, [["mmmm"]])
    with pytest.raises(Unexpected):
        batch_of([chunk.replace(b"mmmm", b"m\xff\xfem")], SCHEMA, SHARD, 0, WIDE)


@pytest.mark.parametrize(("counts", "damaged"), [((2, 2), (1, 3)), ((2, 2), (3, 1)), ((2, 2), (1, 1)), ((2,), (3,))])
def test_a_chunk_with_another_number_of_rows_than_it_says_is_left_to_the_decoder(
    counts: tuple[int, ...], damaged: tuple[int, ...]
) -> None:
    chunks = [
        encode_chunk("e", 1, 5, Event.DUPLICATE, "orders", None, None, None, [["m"]] * count).replace(
            bytes([0x90 + count, 0x91]), bytes([0x90 + told, 0x91])
        )
        for count, told in zip(counts, damaged, strict=True)
    ]
    with pytest.raises(Unexpected):
        batch_of(chunks, SCHEMA, SHARD, 0, WIDE)


def test_a_chunk_that_says_to_have_four_billion_rows_is_left_to_the_decoder() -> None:
    chunk = encode_chunk("e", 1, 5, Event.DUPLICATE, "orders", None, None, None, [["m"]])
    with pytest.raises(Unexpected):
        batch_of([chunk.replace(b"\x91\x91", b"\xdd\xff\xff\xff\xff\x91")], SCHEMA, SHARD, 0, WIDE)


@pytest.mark.parametrize("cut", range(1, 40))
def test_a_chunk_that_was_cut_off_is_left_to_the_decoder(cut: int) -> None:
    chunk = encode_chunk("e", 1, 5, Event.CANCELLED, "orders", "g", "w", 1, [["m" * 40, 1]])
    with pytest.raises(Unexpected):
        batch_of([chunk[:-cut]], SCHEMA, SHARD, 0, WIDE)


def test_rows_are_only_found_where_each_begins_at_the_end_of_the_one_before() -> None:
    packed = MsgpackValues([b"\x92\xa1m\x01\x92\xa1m\x02"])
    assert [places.tolist() for places in packed.rows(0, 8, 2, 2)] == [[1, 5], [3, 7], [4, 8]]
    for begin, end, values, count in ((0, 8, 2, 1), (0, 8, 2, 3), (4, 8, 2, 2), (0, 7, 2, 2), (0, 8, 1, 2)):
        with pytest.raises(Unexpected):
            packed.rows(begin, end, values, count)


def test_chunks_of_actors_and_versions_are_decoded_by_column_beside_those_without() -> None:
    chunks = [
        encode_chunk("e", 1, 5, Event.DUPLICATE, "orders", None, None, None, [["a"], ["b"]]),
        encode_chunk("e", 3, 5, Event.CANCELLED, "orders", "g", None, 1, [["a", 1]], "ann"),
        encode_chunk("e", 4, 5, Event.DUPLICATE, "orders", None, None, None, [["c"]], None, "2.1"),
    ]
    table = pa.Table.from_batches([batch_of(chunks, SCHEMA, SHARD, 0, WIDE)]).sort_by("seq")
    assert table["actor"].to_pylist() == [None, None, "ann", None]
    assert table["app_version"].to_pylist() == [None, None, None, "2.1"]
    assert table.equals(row_by_row(chunks, 0, WIDE, SCHEMA).sort_by("seq"))
