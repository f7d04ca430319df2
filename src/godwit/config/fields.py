"""Reading and replacing fields deep inside frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")


def field_of(value: Any, path: tuple[str, ...]) -> Any:
    """Return the value at the end of a path of field names; None where the path ends early."""
    for name in path:
        if value is None:
            return None
        value = getattr(value, name)
    return value


def with_fields(value: T, pairs: Iterable[tuple[tuple[str, ...], Any]]) -> T:
    """Return a copy of a frozen value with the fields at the ends of the paths replaced, all of one value at once."""
    own: dict[str, Any] = {}
    inner: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for (name, *rest), new in pairs:
        if rest:
            inner.setdefault(name, []).append((tuple(rest), new))
        else:
            own[name] = new
    for name, deeper in inner.items():
        own[name] = with_fields(getattr(value, name), deeper)
    if not own:
        return value
    if isinstance(value, msgspec.Struct):
        return cast("T", msgspec.structs.replace(value, **own))
    return cast("T", dataclasses.replace(cast("Any", value), **own))
