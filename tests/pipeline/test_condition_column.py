from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from godwit.pipeline.query.condition import ColumnKind, parse
from godwit.pipeline.transforms.condition_column import condition_column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = {"id": ColumnKind.NUMBER, "type": ColumnKind.TEXT, "at": ColumnKind.TIME}


@pytest.fixture(scope="module")
def rows(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [
            (1, "order", "2026-01-01 00:00:00"),
            (2, "order.paid", "2026-01-02 00:00:00"),
            (3, 'it\'s "so"`\\', "2026-01-03 00:00:00"),
            (4, None, None),
        ],
        "id int, type string, time string",
    ).selectExpr("id", "type", "cast(time as timestamp) as at")


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("type == 'order'", {1}),
        ("type != 'order'", {2, 3, 4}),
        ("!(type == 'order')", {2, 3, 4}),
        ("!(type != 'order')", {1}),
        ("type == null", {4}),
        ("type != null", {1, 2, 3}),
        ("type.startsWith('order') && id > 1", {2}),
        ("type.endsWith('paid') || type.contains('so')", {2, 3}),
        ("type in ['order', 'order.paid']", {1, 2}),
        ("!(type in ['order', 'order.paid'])", {3, 4}),
        ('type == "it\'s \\"so\\"`\\\\"', {3}),
        ("at >= timestamp('2026-01-02T01:00:00+01:00')", {2, 3}),
        ("id < 2.5 && id >= -1", {1, 2}),
        ("id in [1, 4] && (type == null || at < timestamp('2026-06-01T00:00:00Z'))", {1, 4}),
    ],
)
def test_a_condition_chooses_exactly_these_rows(rows: DataFrame, condition: str, wanted: set[int]) -> None:
    assert {row.id for row in rows.where(condition_column(parse(condition, COLUMNS))).collect()} == wanted
