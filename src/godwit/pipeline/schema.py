"""The journal's typed table: the columns of `journal.json`, as Spark and as Arrow know them.

`journal.json` is committed in Spark's own form (`StructType.json()`), each column with its meaning as comment; columns
are only ever added at its end. A test holds it against the layouts of `godwit.core.journal`.
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


@cache
def document() -> dict[str, Any]:
    """Return the committed schema as it is written."""
    found: dict[str, Any] = json.loads(files("godwit.pipeline").joinpath(FILE).read_text("utf-8"))
    return found


@cache
def journal_schema() -> StructType:
    """Return all columns of a journal."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(document())


def columns(*names: str) -> StructType:
    """Return the schema of some columns, in this order; what is not asked for is not decoded."""
    from pyspark.sql.types import StructType

    return StructType([journal_schema()[name] for name in names])


def check_columns(schema: StructType) -> None:
    """Refuse columns that a journal does not have, or has with another type."""
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
