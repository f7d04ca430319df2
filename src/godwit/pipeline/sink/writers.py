"""The writers of the data source `godwit`: rows become messages, each of them once.

A task checks all its rows, leaves out the messages that its batch has sent before, and sends the others in blocks. A
batch is named by the option `runId` when a table is written, and by the query and Spark's batch number in a stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from godwit.brokers.contract import Broker
from godwit.brokers.urls import connect
from godwit.core.errors import InvalidSetting
from godwit.core.fault_points import fault_point
from godwit.core.messages.envelope import Envelope
from godwit.core.names import queue_name
from godwit.pipeline.sink.row_messages import RowMessages, check_schema
from godwit.pipeline.sink.sink_log import SinkLog, batch_name, drop_earlier_batches
from godwit.pipeline.source.options import absolute_url
from godwit.pipeline.spark.worker_gc import reduce_collections

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
BLOCK: Final = 2_000
NAMES: Final = ("url", "queue", "runId", "sink")
ASYNCHRONOUS: Final = "asyncProgressTrackingEnabled"
BATCH_PROPERTY: Final = "streaming.sql.batchId"
QUERY_PROPERTY: Final = "sql.streaming.queryId"


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Where rows go; `run_id` names a written table, `sink` identifies a stream in the sink log."""

    url: str
    queue: str | None = None
    run_id: str | None = None
    sink: str | None = None


class SendResult(WriterCommitMessage):
    """How many messages a task sent for a sink, and how many had been sent before."""

    def __init__(self, sink: str, sent: int, before: int) -> None:
        self.sink, self.sent, self.before = sink, sent, before


def write_options(given: Mapping[str, str], *, stream: bool) -> WriteOptions:
    """Return the options of a write; refuse unknown ones."""
    # Spark adds its own options to those of a stream.
    own = ("checkpointlocation", "path", "queryname")
    options = {name.lower(): value for name, value in given.items() if name.lower() not in own}
    if options.get(ASYNCHRONOUS.lower(), "false").lower() != "false":
        raise InvalidSetting(
            f"option {ASYNCHRONOUS}", options[ASYNCHRONOUS.lower()],
            "false: Spark would begin a batch before the one before it is written down, and what was sent be forgotten",
        )  # fmt: skip
    for name in options:
        if name not in {known.lower() for known in (*NAMES, ASYNCHRONOUS)}:
            raise InvalidSetting("option", name, ", ".join(NAMES))
    if not options.get("url"):
        raise InvalidSetting("option url", options.get("url"), "the broker's URL, such as sqlite:///godwit.db")
    if not stream and not options.get("runid"):
        raise InvalidSetting(
            "option runId", None, "a name for this table: writing it again under it sends nothing twice"
        )
    queue = options.get("queue") or None
    for word in (queue, options.get("runid"), options.get("sink")):
        if word:
            queue_name(word)
    return WriteOptions(
        url=absolute_url(options["url"]),
        queue=queue,
        run_id=options.get("runid") or None,
        sink=options.get("sink") or None,
    )


class TableWriter(DataSourceArrowWriter):
    """Sends the rows of a table."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        reduce_collections()  # Spark makes the writer in a worker
        check_schema(schema, options.queue)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SendResult:
        """Send the rows of one task."""
        return send(self._options, iterator, self._options.run_id or "", "table")


class StreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of a stream."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_schema(schema, options.queue)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SendResult:
        """Send the rows of one task."""
        task = TaskContext.get()
        assert task is not None  # noqa: S101 # Spark runs this in a task
        sink = self._options.sink or task.getLocalProperty(QUERY_PROPERTY) or ""
        batch = task.getLocalProperty(BATCH_PROPERTY)
        return send(self._options, iterator, sink, batch_name(int(batch or 0)))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 # Spark's name
        """Drop the log of earlier batches; this batch may still be tried again."""
        for sink in {message.sink for message in messages if isinstance(message, SendResult)}:
            _ask(self._options.url, lambda broker: drop_earlier_batches(broker, sink, batch_name(batchId)))  # noqa: B023


def send(options: WriteOptions, batches: Iterator[pa.RecordBatch], sink: str, batch: str) -> SendResult:
    """Check all rows of a task, then send the messages that were not sent before."""
    reduce_collections()

    async def work(broker: Broker) -> SendResult:
        known = {queue.name for queue in await broker.stats()}
        messages = RowMessages(f"{sink}/{batch}", options.queue, known)
        for rows in batches:
            messages.add(rows)
        envelopes = messages.checked()
        sink_log = SinkLog(broker, sink, batch)
        already = await sink_log.sent_among([envelope.id for envelope in envelopes])
        fresh = [envelope for envelope in envelopes if envelope.id not in already] if already else envelopes
        for start in range(0, len(fresh), BLOCK):
            await _send_block(broker, sink_log, fresh[start : start + BLOCK])
        return SendResult(sink, len(fresh), len(envelopes) - len(fresh))

    return _ask(options.url, work)


async def _send_block(broker: Broker, sink_log: SinkLog, block: Sequence[Envelope]) -> None:
    key = await sink_log.begin([envelope.id for envelope in block])
    fault_point("sink.unsure")
    await broker.publish(block)
    fault_point("sink.published")
    await sink_log.finish(key)
    fault_point("sink.sent")


def _ask(url: str, call: Callable[[Broker], Awaitable[T]]) -> T:
    async def work() -> T:
        async with connect(url) as broker:
            return await call(broker)

    return asyncio.run(work())
