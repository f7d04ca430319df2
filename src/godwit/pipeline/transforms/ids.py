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
    near = F.crc32(F.concat(name, F.left(key, F.length(key) - NEAR)).cast("binary"))
    begins = F.lpad(F.lower(F.hex(near)), 8, "0")
    return _joined(begins, "8", _digits(IDS, F.concat(name, key)))


def uuid5(namespace: uuid.UUID, name: Column) -> Column:
    """Return the column of what `uuid.uuid5` returns for every row's name."""
    digits = _digits(namespace, name)
    return _joined(F.substring(digits, 1, 8), "5", digits)


def _digits(namespace: uuid.UUID, name: Column) -> Column:
    return F.sha1(F.concat(F.lit(namespace.bytes), name.cast("binary")))


def _joined(begins: Column, version: str, digits: Column) -> Column:
    """Return a UUID as text: how it begins, its version, and the rest of a hash."""
    variant = F.translate(F.substring(digits, 17, 1), "0123456789abcdef", "89ab" * 4)
    return F.concat(
        begins,
        F.lit("-"),
        F.substring(digits, 9, 4),
        F.lit(f"-{version}"),
        F.substring(digits, 14, 3),
        F.lit("-"),
        variant,
        F.substring(digits, 18, 3),
        F.lit("-"),
        F.substring(digits, 21, 12),
    )
