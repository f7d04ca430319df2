from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from godwit.core.errors import InvalidSetting
from godwit.core.journal.vocabulary import HEADER, LAYOUTS
from godwit.pipeline.source.schema import arrow_schema, check_columns, columns, journal_schema, schema_document

FIRST_VERSION = (
    "epoch", "shard", "seq", "at", "event", "queue", "group", "worker", "depth", "message_id", "delivery_id",
    "publish_seq", "copy", "copies", "type", "priority", "lane", "ordering_key", "attempt", "failures", "crashes",
    "ready_at", "deliver_at", "expires_at", "lease_until", "wait_ms", "run_ms", "size", "error_kind",
    "error_fingerprint", "schedule_id", "campaign", "replay_of", "result", "body", "count", "publish_seq_first",
    "publish_seq_last", "former_seq", "target",
)  # fmt: skip


def test_the_table_has_a_column_for_every_field_of_every_event() -> None:
    fields = {*HEADER, *(field for layout in LAYOUTS.values() for field in layout)}
    assert set(journal_schema().names) == fields


def test_columns_are_only_ever_added_at_the_end() -> None:
    assert tuple(journal_schema().names[: len(FIRST_VERSION)]) == FIRST_VERSION


def test_every_column_says_what_it_means() -> None:
    assert all(len(field["metadata"]["comment"].split()) >= 2 for field in schema_document()["fields"])


def test_the_committed_file_is_what_spark_would_write() -> None:
    assert json.loads(journal_schema().json()) == schema_document()


def test_times_are_instants_in_utc_for_arrow() -> None:
    assert arrow_schema(columns("at")).field("at").type == pa.timestamp("us", tz="UTC")


def test_some_columns_can_be_chosen() -> None:
    assert columns("seq", "event").names == ["seq", "event"]


@pytest.mark.parametrize(
    ("field", "problem"),
    [(StructField("sequence", LongType()), "'sequence'"), (StructField("seq", StringType()), "bigint")],
)
def test_a_column_that_a_journal_does_not_have_is_refused(field: StructField, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        check_columns(StructType([field]))
