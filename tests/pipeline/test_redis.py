"""The same source, sink and pipeline with Redis as broker and PostgreSQL as store."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - the name it goes by in all examples

from godwit.brokers.contract import ShardEnds
from godwit.brokers.urls import connect
from godwit.core.messages.envelope import seal_all
from godwit.core.messages.message import Message
from godwit.core.queues import GroupSpec, QueueSpec
from godwit.pipeline.audit.verdict import AuditVerdict
from godwit.pipeline.jobs.audit import AuditSettings, audit_in_session, verify_chain
from godwit.pipeline.jobs.run import RunSettings, follow
from godwit.pipeline.source.decoder import ChunkDecoder
from godwit.pipeline.source.offsets import RowRange, split
from godwit.pipeline.source.reader import read_batches
from godwit.pipeline.source.schema import arrow_schema, columns
from godwit.pipeline.spark.connections import Connections
from tests.pipeline.journals import traffic
from tests.pipeline.oracle import assert_agreement, journal_rows
from tests.servers.postgres import fresh_database
from tests.servers.redis import fresh

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def ends_of(url: str) -> Mapping[str, ShardEnds]:
    async def ask() -> Mapping[str, ShardEnds]:
        async with connect(url) as broker:
            return await broker.journal.shards()

    return asyncio.run(ask())


def test_ranges_of_a_redis_journal_hold_every_row_once() -> None:
    url = fresh().url
    traffic(url, messages=700)
    schema = arrow_schema(columns("shard", "seq", "event", "message_id", "body", "result", "at", "depth"))
    found = []
    for shard, ends in ends_of(url).items():
        whole = RowRange(shard, ends.epoch, ends.first_seq - 1, ends.last_seq)
        parts = list(split(whole, 333))
        found += list(read_batches(url, parts, partial(ChunkDecoder, schema), fail_on_data_loss=True))
    told = pa.Table.from_batches(found, schema)
    rows = journal_rows(url)
    assert Counter(
        zip(*(told[name].to_pylist() for name in ("seq", "event", "message_id", "body")), strict=True)
    ) == Counter((row["seq"], row["event"], row.get("message_id"), row.get("body")) for row in rows)


def test_every_range_of_a_compact_journal_has_its_rows_and_no_others() -> None:
    url = fresh().url
    traffic(url, messages=4)
    schema = arrow_schema(columns("seq", "event", "group", "message_id"))
    rows = [tuple(row.get(name) for name in schema.names) for row in journal_rows(url)]
    ((shard, ends),) = ends_of(url).items()
    assert [row[0] for row in rows] == list(range(1, ends.last_seq + 1))
    for after in range(len(rows)):
        for until in range(after + 1, len(rows) + 1):
            parts = [RowRange(shard, ends.epoch, after, until)]
            found = list(read_batches(url, parts, partial(ChunkDecoder, schema), fail_on_data_loss=True))
            told = pa.Table.from_batches(found, schema).sort_by("seq")
            assert [tuple(row.values()) for row in told.to_pylist()] == rows[after:until], (after, until)


def test_the_pipeline_and_the_sink_on_redis_and_postgres(spark: SparkSession, tmp_path: Path) -> None:
    url = fresh().url
    traffic(url, messages=600)
    rows = spark.range(0, 2_000, 1, 2).select(
        F.col("id").cast("string").alias("key"), F.lit("{}").alias("payload"), F.lit("bulk").alias("type")
    )
    for _ in range(2):
        rows.write.format("godwit").mode("append").options(url=url, queue="orders", runId="once").save()
    with fresh_database() as store:
        settings = RunSettings(
            broker_url=url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "analytics"), once=True,
            max_rows=4_000,
        )  # fmt: skip
        with Connections(url, store) as connections:
            follow(spark, connections, settings, lambda _outcome: None)
        assert_agreement(url, store, tmp_path / "lake")
    sent = Counter(row["message_id"] for row in journal_rows(url) if row.get("type") == "bulk" and row["copy"] == 0)
    assert len(sent) == 2_000
    assert set(sent.values()) == {1}


def test_fifty_messages_that_waited_on_a_flushed_server_are_never_clean(spark: SparkSession, tmp_path: Path) -> None:
    server = fresh()

    async def publish() -> None:
        async with connect(server.url) as broker:
            await broker.declare(QueueSpec(name="orders"), [GroupSpec(name="g")])
            await broker.publish(seal_all([Message(id=f"m{number}", queue="orders") for number in range(50)]))

    asyncio.run(publish())
    with fresh_database() as store, Connections(server.url, store) as connections:
        run = RunSettings(
            broker_url=server.url, store_url=store, lake=str(tmp_path / "lake"), parts=("archive", "audit"), once=True
        )
        before = audit_in_session(spark, connections, AuditSettings(run=run))
        assert (before.verdict, before.open, before.coverage.level) == (AuditVerdict.CLEAN, 50, 1)
        server.flush()
        flushed = audit_in_session(spark, connections, AuditSettings(run=run))
        assert (flushed.verdict, flushed.open) == (AuditVerdict.UNKNOWN, 50)
        assert [(span.shard, span.copies, span.last_seq) for span in flushed.unknown] == [("orders#0", 50, None)]
        assert verify_chain(connections, "default").verdicts == 2
