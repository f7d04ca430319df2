"""Ids that follow from what a row is, the same in Spark and in Python."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

if TYPE_CHECKING:
    from pyspark.sql import Column


def uuid5(namespace: uuid.UUID, *parts: str) -> uuid.UUID:
    """Return the id of something known by several texts; each is preceded by its length, so that none runs on."""
    return uuid.uuid5(namespace, "".join(f"{len(part)}:{part}" for part in parts))


def uuid5_column(namespace: uuid.UUID, *parts: Column) -> Column:
    """Return the column of what `uuid5` returns for every row."""
    text = F.concat(*(piece for part in parts for piece in (F.length(part).cast("string"), F.lit(":"), part)))
    digits = F.sha1(F.concat(F.lit(namespace.bytes), text.cast("binary")))
    variant = F.translate(F.substring(digits, 17, 1), "0123456789abcdef", "89ab" * 4)
    return F.concat(
        F.substring(digits, 1, 8),
        F.lit("-"),
        F.substring(digits, 9, 4),
        F.lit("-5"),
        F.substring(digits, 14, 3),
        F.lit("-"),
        variant,
        F.substring(digits, 18, 3),
        F.lit("-"),
        F.substring(digits, 21, 12),
    )
