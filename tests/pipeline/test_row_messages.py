"""Rows that take the short way become the same messages, and the same refusals, as those that take the long one."""

from __future__ import annotations

import json
import uuid
from datetime import UTC, datetime

import pyarrow as pa
import pytest

from godwit.brokers.memory import MemoryBroker
from godwit.core.errors import RowsRefused
from godwit.core.messages.envelope import Envelope
from godwit.core.names import QueueName
from godwit.pipeline.sink.row_messages import RowMessages
from godwit.pipeline.sink.row_template import NAMESPACE, RowTemplates, uuid5
from godwit.pipeline.sink.sink_log import PAGE, SinkLog, WantedIds, drop_earlier_batches, pack_ids, unpack_ids

NOW = datetime(2026, 5, 1, 12, 0, 0, 123_000, tzinfo=UTC)
PAYLOADS = [
    '{"n":1}', ' { "a" : [1, 2.50, null, {"b": "\\u00fc\\n"}], "a": 2 } ', '"text"', "7", "1e3", "true", "[]", "{}",
    '"payload goes here"', '{"payload goes":"here"}', "-0.0", "null", "18446744073709551615", "12345678901234567890123",
]  # fmt: skip
BAD = ["", "{", "nul", "NaN", "[" * 70 + "]" * 70, None, "[" * 5_000 + "]" * 5_000]


def outgoing(rows: list[dict[str, str | None]], *, short: bool) -> RowMessages:
    """Gather rows; a column that says nothing makes them take the long way."""
    found = RowMessages("sink/batch", "orders", {"orders"}, now=NOW)
    names = list(rows[0]) + ([] if short else ["ordering_key"])
    found.add(pa.record_batch({name: pa.array([row.get(name) for row in rows], pa.string()) for name in names}))
    return found


@pytest.mark.parametrize("types", [(), ("order.created", None, "mail"), ("mail",)])
@pytest.mark.parametrize("payloads", [PAYLOADS, [one for one in PAYLOADS if one != "null"]])
def test_the_short_way_makes_the_same_messages(types: tuple[str | None, ...], payloads: list[str]) -> None:
    rows = list[dict[str, str | None]]()
    for number, payload in enumerate(payloads):
        rows.append({"key": f"kéy-{number}", "payload": payload})
        if types:
            rows[-1]["type"] = types[number % len(types)]
    short, long = (outgoing(rows, short=short) for short in (True, False))
    assert short.checked() == long.checked()
    for envelope, row in zip(short.checked(), rows, strict=True):
        assert (
            envelope.id == str(uuid.uuid5(NAMESPACE, f"sink/batch|{row['key']}")) == uuid5(f"sink/batch|{row['key']}")
        )
        assert envelope.open().payload == json.loads(row["payload"] or "")


def test_rows_of_which_none_is_odd_are_sealed_together_and_one_that_is_makes_all_be_looked_at_alone() -> None:
    patterns = RowTemplates("sink/batch|", QueueName("orders"), NOW)
    good = [payload for payload in PAYLOADS if payload != "null"]

    def together(payloads: list[str | None], keys: list[str | None] | None = None) -> list[Envelope] | None:
        names = [f"key-{number}" for number in range(len(payloads))] if keys is None else keys
        return patterns.seal_rows(pa.array(names, pa.string()), pa.array(payloads, pa.string()), None)

    assert together([*good]) == [patterns.seal_row(f"key-{number}", one, None) for number, one in enumerate(good)]
    # Deep, but not too deep; and halves of a value that together would be as many values as there are rows.
    assert together(["[" * 64 + "]" * 64]) is not None
    for odd in [*BAD, "null", "1 2", "1\n2", "[" * 65 + "]" * 65]:
        assert together(["1", odd]) is None
    assert together(["[1", ",2]", "1 2"]) is None
    assert together(["1", "2"], ["a", None]) is None


@pytest.mark.parametrize("ids", [
    ["m-1", "m-2"], [str(NAMESPACE).upper()], [str(NAMESPACE), "0" * 36], ["6f64b0f7 6d0c-5f0e-9a55-60d3170000-1"],
    ["-" * 36], ["é" * 36],
])  # fmt: skip
def test_ids_that_were_sent_are_kept_as_they_are_and_uuids_in_16_bytes(ids: list[str]) -> None:
    assert pack_ids(ids) == unpack_ids(pack_ids(ids)) == ids
    known = [str(uuid.uuid5(NAMESPACE, name)) for name in ids]
    assert len(pack_ids(known)) == 16 * len(ids)
    assert unpack_ids(pack_ids(known)) == known


@pytest.mark.parametrize(
    "own", [[str(uuid.uuid4()) for _ in range(1_000)], ["m-1", *(str(uuid.uuid4()) for _ in "ab")]]
)
def test_ids_are_found_among_those_of_any_block(own: list[str]) -> None:
    others = [str(uuid.uuid7() if hasattr(uuid, "uuid7") else uuid.uuid1()) for _ in range(5_000)]
    wanted = WantedIds(own)
    for block in ([*others, *own[1:3]], ["m-2", *own[1:3]], own[1:3]):
        assert sorted(wanted.among(pack_ids(block))) == sorted(own[1:3])
    assert wanted.among(pack_ids(others)) == wanted.among(["m-2"]) == wanted.among([]) == []


async def test_what_a_batch_has_sent_is_found_page_by_page() -> None:
    async with MemoryBroker() as broker:
        sent, later = SinkLog(broker, "s/1", "000000000001"), SinkLog(broker, "s/1", "000000000002")
        ids = [str(uuid.uuid4()) for _ in range(PAGE + 1)]
        sure = [
            one for number, one in enumerate(ids) if number % 3
        ]  # pages end behind a block as well as behind its mark
        for one in ids:
            key = await sent.begin([one, str(uuid.uuid4())])
            if one in sure:
                await sent.finish(key)
        assert await sent.sent_among([*ids, "m-1"]) == set(sure)
        assert await later.sent_among(ids) == set()
        await drop_earlier_batches(broker, "s", "000000000009")  # another sink
        await drop_earlier_batches(broker, "s/1", "000000000001")
        assert await sent.sent_among(ids) == set(sure)
        await drop_earlier_batches(broker, "s/1", "000000000002")
        assert await sent.sent_among(ids) == set()
        assert await broker.shared.scan("") == {}


async def test_a_block_is_sent_by_its_own_word_only() -> None:
    async with MemoryBroker() as broker:
        sent, known = SinkLog(broker, "s", "table"), str(uuid.uuid4())
        key = await sent.begin([known])
        await sent.finish(f"{key}0")  # of a block whose own time was over a moment before that of its mark
        assert await sent.sent_among([known]) == set()
        await sent.finish(key)
        assert await sent.sent_among([known]) == {known}


@pytest.mark.parametrize("payload", BAD)
def test_the_short_way_refuses_the_same_rows(payload: str | None) -> None:
    rows: list[dict[str, str | None]] = [{"key": "a", "payload": "1"}, {"key": "b", "payload": payload}]
    said = []
    for short in (True, False):
        with pytest.raises(RowsRefused) as caught:
            outgoing(rows, short=short).checked()
        said.append(str(caught.value).replace(", 'ordering_key': None", ""))
    assert said[0] == said[1]


def test_a_type_that_cannot_be_one_is_refused_and_no_key_makes_an_id_of_the_whole_row() -> None:
    with pytest.raises(RowsRefused):
        outgoing([{"key": "a", "payload": "1", "type": "tab\t"}], short=True).checked()
    one, other = outgoing([{"key": None, "payload": "1"}, {"key": None, "payload": "2"}], short=True).checked()
    assert one.id != other.id


def test_maps_and_bytes_inside_a_payload_are_what_spark_makes_of_them() -> None:
    kind = pa.struct(
        [
            ("map", pa.map_(pa.string(), pa.map_(pa.int32(), pa.binary()))),
            ("list", pa.list_(pa.binary())),
            ("at", pa.timestamp("us", "UTC")),
        ]
    )
    rows = [
        {"map": [("a", [(1, b"\x00\xff")]), ("b", [])], "list": [b"x", None], "at": NOW},
        {"map": [], "list": [], "at": None},
    ]
    found = RowMessages("sink/batch", "orders", {"orders"}, now=NOW)
    found.add(pa.record_batch({"payload": pa.array(rows, kind), "priority": pa.array([1, 2])}))
    assert [envelope.open().payload for envelope in found.checked()] == [
        {"map": {"a": {"1": "AP8="}, "b": {}}, "list": ["eA==", None], "at": NOW.isoformat()},
        {"map": {}, "list": [], "at": None},
    ]
