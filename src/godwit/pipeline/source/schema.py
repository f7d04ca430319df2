"""The journal's typed table: the columns of `journal.json` as Spark's and Arrow's schemas.

`journal.json` is committed in Spark's own form (`StructType.json()`), each column with its meaning as comment; columns
are only ever added at its end. A test compares it with the layouts of `godwit.core.journal.vocabulary`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

from godwit.core.errors import InvalidSetting, listed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FILE: Final = "journal.json"
_PARTIALS: Final = (
    "shard string, epoch string, queue string, minute long, group string, metric string, bucket int, n long,"
    " first_seq long, last_seq long, seq_sum long, last_at_ms long, enqueued long, originals long, processed long,"
    " failed long, retried long, expired long, delivered long, value_sum long, peak long"
)


@cache
def schema_document() -> dict[str, Any]:
    """Return the committed schema as a dictionary."""
    schema: dict[str, Any] = json.loads(files("godwit.pipeline.source").joinpath(FILE).read_text("utf-8"))
    return schema


@cache
def journal_schema() -> StructType:
    """Return all columns of a journal."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(schema_document())


@cache
def partials_schema() -> StructType:
    """Return the columns of partial sums: those of `transforms.analytics.partials`."""
    from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

    kinds = {"string": StringType(), "int": IntegerType(), "long": LongType()}
    words = [name.rpartition(" ") for name in _PARTIALS.split(", ")]
    return StructType([StructField(name, kinds[kind]) for name, _, kind in words])


def columns(*names: str) -> StructType:
    """Return the schema of some columns, in this order; columns that are not asked for are not decoded."""
    from pyspark.sql.types import StructType

    return StructType([journal_schema()[name] for name in names])


def check_columns(schema: StructType, *, partials: bool = False) -> None:
    """Refuse columns that a journal lacks or has with another type; partial sums need exactly all of theirs."""
    if partials:
        if schema != partials_schema():
            raise InvalidSetting("schema", schema.simpleString(), f"none, or {partials_schema().simpleString()}")
        return
    known = {field.name: field.dataType for field in journal_schema()}
    for field in schema:
        if field.name not in known:
            raise InvalidSetting("column", field.name, f"columns of a journal ({listed(tuple(known))})")
        if field.dataType != known[field.name]:
            wanted = known[field.name].simpleString()
            raise InvalidSetting(f"type of column {field.name}", field.dataType.simpleString(), wanted)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a reader with this schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
