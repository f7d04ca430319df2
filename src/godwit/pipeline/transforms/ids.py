"""Ids that follow from what a row is, the same as Python makes them."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from godwit.core.schedule import IDS, NEAR

if TYPE_CHECKING:
    from pyspark.sql import Column


def campaign_id(campaign: str, key: Column) -> Column:
    """Return the column of what `core.schedule.campaign_id` returns for every row's key."""
    name = F.lit(f"campaign\0{campaign}\0")
    own = uuid5(IDS, F.concat(name, key))
    near = F.crc32(F.concat(name, F.left(key, F.length(key) - NEAR)).cast("binary"))
    return F.concat(F.lpad(F.lower(F.hex(near)), 8, "0"), F.substring(own, 9, 6), F.lit("8"), F.substring(own, 16, 21))


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
