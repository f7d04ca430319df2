"""Ids derived from a row's content, the same as Python makes them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its usual name

from godwit.core.schedule.schedules import IDS, NEAR

if TYPE_CHECKING:
    from pyspark.sql import Column


def campaign_id(campaign: str, key: str) -> str:
    """Return the SQL of what `core.schedule.campaign_id` returns for the key in a column.

    It is one text, because each function called for a column is a call of the JVM.
    """
    name = f"campaign\0{campaign}\0".encode()
    near = f"crc32(concat(X'{name.hex()}', CAST(left({key}, length({key}) - {NEAR}) AS BINARY)))"
    digits = f"sha1(concat(X'{(IDS.bytes + name).hex()}', CAST({key} AS BINARY)))"
    variant = f"substr('{'89ab' * 4}', instr('0123456789abcdef', substr({digits}, 17, 1)), 1)"
    # A ninth digit in front instead of zeros where there are none.
    return (
        f"concat(substr(lower(hex({near} + {1 << 32})), 2), '-', substr({digits}, 9, 4), '-8',"
        f" substr({digits}, 14, 3), '-', {variant}, substr({digits}, 18, 3), '-', substr({digits}, 21, 12))"
    )


def uuid5(namespace: uuid.UUID, name: Column) -> Column:
    """Return the column of what `uuid.uuid5` returns for every row's name."""
    digits = F.sha1(F.concat(F.lit(namespace.bytes), name.cast("binary")))
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
