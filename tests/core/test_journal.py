"""The journal's format: what was written once must be read for ever."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from godwit.core.journal.chunks import (
    VERSION,
    decode_chunk,
    encode_chunk,
    encode_parts,
    joined,
    rows_of,
    without_ending,
)
from godwit.core.journal.shards import Position, shard_name
from godwit.core.journal.vocabulary import HEADER, LAYOUTS, Event

ROOT = Path(__file__).parents[2]
SCHEMA: dict[str, Any] = json.loads((ROOT / "docs" / "journal-schema.json").read_text(encoding="utf-8"))
GOLDEN = Path(__file__).parent / "golden" / "journal-chunk-v1.msgpack"
GOLDEN_CHUNK: Any = (
    "e1", 11, 1_750_000_000_000, Event.DELIVERED, "orders", "billing", "worker-1", 3,
    [
        ("m1", 1, "t1", 1, 0, 0, 1_750_000_030_000, 5, "order.created", 1, None),
        ("m2", 2, "t2", 2, 1, 0, 1_750_000_030_000, 7, "order.created", 3, "k"),
    ],
)  # fmt: skip


def test_every_event_has_a_layout() -> None:
    assert set(LAYOUTS) == set(Event)


@pytest.mark.parametrize("event", list(Event))
def test_a_layout_begins_with_the_committed_one(event: Event) -> None:
    committed = tuple(SCHEMA["events"][event])
    assert LAYOUTS[event][: len(committed)] == committed, "fields are only ever appended"


def test_the_committed_schema_is_complete() -> None:
    """After appending a field, write it into docs/journal-schema.json too."""
    assert {event: list(layout) for event, layout in LAYOUTS.items()} == SCHEMA["events"]
    assert SCHEMA["version"] == VERSION
    assert tuple(SCHEMA["header"]) == HEADER


def test_no_layout_has_a_field_twice_or_one_of_the_header() -> None:
    for layout in LAYOUTS.values():
        assert len(set(layout)) == len(layout)
        assert not set(layout) & (set(HEADER) - {"epoch"})


def test_a_chunk_of_version_1_is_still_read() -> None:
    chunk = decode_chunk(GOLDEN.read_bytes())
    rows = list(rows_of(chunk, "orders#0"))
    assert [(row["seq"], row["message_id"], row["attempt"], row["ordering_key"]) for row in rows] == [
        (11, "m1", 1, None),
        (12, "m2", 2, "k"),
    ]
    assert (chunk.last_seq, rows[0]["shard"], rows[0]["depth"], rows[0]["worker"]) == (12, "orders#0", 3, "worker-1")


def test_chunks_are_still_written_as_in_version_1() -> None:
    assert encode_chunk(*GOLDEN_CHUNK) == GOLDEN.read_bytes()


def test_a_chunk_that_ends_with_its_rows_has_no_actor_and_no_version() -> None:
    (row, _) = rows_of(decode_chunk(GOLDEN.read_bytes()), "orders#0")
    assert (row["actor"], row["app_version"]) == (None, None)


@pytest.mark.parametrize("ending", [("ann", None), (None, "2.1"), ("ann", "2.1"), (None, None)])
def test_actor_and_version_follow_the_rows_where_there_are_any(ending: tuple[str | None, str | None]) -> None:
    whole: Any = (*GOLDEN_CHUNK, *ending)
    chunk = encode_chunk(*whole)
    assert {(row["actor"], row["app_version"]) for row in rows_of(decode_chunk(chunk), "orders#0")} == {ending}
    assert without_ending(chunk) == (GOLDEN.read_bytes(), *ending)
    header, rows = encode_parts(*whole[3:])
    assert joined(whole[0], whole[1], whole[2], header, rows) == chunk
    assert len(chunk) - GOLDEN.stat().st_size == sum(
        len(msgspec.msgpack.encode(value)) for value in ending[: 2 if ending[1] else 1 if ending[0] else 0]
    )


def test_parts_stored_by_an_older_version_are_joined_as_before() -> None:
    epoch, first_seq, at_ms, *facts, rows = GOLDEN_CHUNK
    header = b"".join(map(msgspec.msgpack.encode, facts))
    assert joined(epoch, first_seq, at_ms, header, msgspec.msgpack.encode(rows)) == GOLDEN.read_bytes()


@pytest.mark.parametrize("ending", [["ann", "2.1", "added later"], ["ann" * 99]])
def test_what_follows_the_rows_in_another_form_is_not_cut_off(ending: list[str]) -> None:
    head = [1, "e", 1, 0, "duplicate", "q", None, None, None, [["m"]]]
    chunk = msgspec.msgpack.encode([*head, *ending])
    if len(ending) == 1:
        chunk = chunk.replace(b"\xda\x01\x29", b"\xdb\x00\x00\x01\x29")
        assert decode_chunk(chunk).actor == ending[0]
    with pytest.raises(msgspec.DecodeError):
        without_ending(chunk)


def test_a_row_of_an_older_version_lacks_only_what_came_later() -> None:
    chunk = decode_chunk(encode_chunk("e", 1, 0, Event.ENQUEUED, "q", "g", None, 1, [("m", 1, 0, 1)]))
    (row,) = rows_of(chunk, "q#0")
    assert row["copies"] == 1
    assert row.get("type") is None


def test_a_row_of_a_newer_version_is_read_without_what_it_added() -> None:
    newer = encode_chunk("e", 1, 0, Event.DUPLICATE, "q", None, None, None, [("m", "added later")])
    (row,) = rows_of(decode_chunk(newer), "q#0")
    assert (row["message_id"], len(row)) == ("m", len(HEADER) + 1)


def test_a_header_of_a_newer_version_is_read_without_what_it_added() -> None:
    newer = msgspec.msgpack.encode([2, "e", 1, 0, "duplicate", "q", None, None, None, [["m"]], "added later"])
    assert decode_chunk(newer).version == 2


@pytest.mark.parametrize("damaged", [b"", b"\x00", b"not a chunk", GOLDEN.read_bytes()[:-1]])
def test_a_damaged_chunk_is_refused(damaged: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_chunk(damaged)


def test_positions_of_one_epoch_are_ordered_by_seq() -> None:
    assert Position("e", 2) < Position("e", 10)


def test_a_shard_is_named_after_its_queue_and_partition() -> None:
    assert (shard_name("orders"), shard_name("orders", 3)) == ("orders#0", "orders#3")
