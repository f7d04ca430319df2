"""Writes a plan's messages to the store from Spark's tasks, thousands at once.

The messages of a campaign differ only in their payload, so each is made by joining columns: the text before the
payload, the payload, and the text after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import msgspec

from godwit.core.clock import from_ms
from godwit.core.messages.envelope import seal
from godwit.core.messages.message import Message
from godwit.core.names import QueueName
from godwit.pipeline.campaign.definition import Campaign
from godwit.store.urls import connect

if TYPE_CHECKING:
    import pyarrow as pa

PLANNED: Final = ("user", "occurrence", "deliver_at", "payload")
"""The columns of a plan's table that its messages are made from."""
_PAYLOAD: Final = "payload goes here"
_PLANNED: Final = "planned"
_ESCAPED: Final = '["\\\\\\x00-\\x1f]'
"""The characters of a text that JSON escapes."""


def message_template(campaign: Campaign) -> tuple[str, str]:
    """Return a campaign's message as JSON: the text before its payload and the text after it."""
    # The same for every plan, so that planning again finds nothing changed; a scheduler gives it its id and time.
    message = Message(
        id=_PLANNED, queue=QueueName(campaign.queue), type=campaign.type, payload=_PAYLOAD, created_at=from_ms(0)
    )
    before, _, behind = seal(message).body.partition(msgspec.json.encode(_PAYLOAD))
    return before.decode(), behind.decode()


def message_batch(batch: pa.RecordBatch, campaign: str, around: tuple[str, str]) -> pa.RecordBatch:
    """Return the messages of a plan's rows (`PLANNED`), as stores take them.

    Keys and ids are those of the plan's table; making them again here is faster than having Spark make and send them.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from godwit.pipeline.sink import uuid_text

    users, occurrences, due, chosen = batch.columns
    days = occurrences.cast(pa.string())
    keys = pc.binary_join_element_wise(users, days, "/")
    id_texts = uuid_text.campaign_texts(campaign, keys.cast(pa.binary()).to_pylist())
    ids = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(uuid_text.WIDTH), len(id_texts), [None, pa.py_buffer(id_texts)]
    )
    bare = pc.equal(chosen, "{}")
    rest: pa.Array | str = "}"
    if not pc.all(bare).as_py():
        rest = pc.if_else(bare, "}", pc.binary_join_element_wise(",", pc.utf8_slice_codeunits(chosen, 1), ""))
    before, behind = around
    pieces = (f'{before}{{"user":', _quoted(users), ',"occurrence":"', days, '"', rest, behind)
    return pa.record_batch(
        {
            "id": ids.cast(pa.binary()).cast(pa.string()),
            "key": keys,
            "deliver_at": due,
            "message": pc.binary_join_element_wise(*pieces, "").cast(pa.binary()),
        }
    )


def _quoted(texts: pa.Array) -> pa.Array:
    """Return texts as JSON strings."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pc.any(pc.match_substring_regex(texts, _ESCAPED)).as_py():
        return pa.array([msgspec.json.encode(text).decode() for text in texts.to_pylist()], pa.string())
    return pc.binary_join_element_wise('"', texts, '"', "")


class PlanAdder:
    """Adds one partition of a campaign's first plan; runs in Spark's Python workers."""

    def __init__(self, url: str, campaign: str, queue: QueueName, around: tuple[str, str]) -> None:
        self._url, self._campaign, self._queue, self._around = url, campaign, queue, around

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Add all rows of the partition and yield their number."""
        yield _row_count(
            asyncio.run(self._add(message_batch(batch, self._campaign, self._around) for batch in batches))
        )

    async def _add(self, parts: Iterable[pa.RecordBatch]) -> int:
        async with connect(self._url) as store:
            return await store.plans.add(self._campaign, self._queue, parts)


class PlanStager:
    """Stages one partition of a plan; runs in Spark's Python workers."""

    def __init__(self, url: str, run_id: str, campaign: str, around: tuple[str, str]) -> None:
        self._url, self._run_id, self._campaign, self._around = url, run_id, campaign, around

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Stage all rows of the partition and yield their number."""
        yield _row_count(
            asyncio.run(self._stage(message_batch(batch, self._campaign, self._around) for batch in batches))
        )

    async def _stage(self, parts: Iterable[pa.RecordBatch]) -> int:
        async with connect(self._url) as store:
            return await store.plans.stage(self._run_id, parts)


def _row_count(written: int) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_pydict({"written": pa.array([written], pa.int64())})
