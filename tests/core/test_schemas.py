"""Payload schemas: what fits, what is refused and where, and which schemas are refused themselves."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import Annotated, Any

import msgspec
import pytest

from godwit.core.errors import ExtraRequired, InvalidMessage, InvalidName, InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.messages.schemas import Schemas


class Line(msgspec.Struct):
    sku: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 1


class Order(msgspec.Struct):
    id: int
    lines: list[Line] = []
    placed_at: datetime | None = None


JSON_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sku"],
                "properties": {"count": {"type": "integer", "minimum": 1}},
            },
        },
        "placed_at": {"type": "string"},
    },
}
BOTH = pytest.mark.parametrize("schema", [Order, JSON_SCHEMA], ids=["msgspec", "json schema"])


def schemas(schema: Any) -> Schemas:
    made = Schemas()
    made.register("order", schema)
    return made


@BOTH
def test_a_payload_that_fits_passes(schema: Any) -> None:
    payload = {"id": 7, "lines": [{"sku": "x", "count": 2}], "placed_at": "2026-01-01T00:00:00Z"}
    schemas(schema).check(Message(type="order", payload=payload))


@BOTH
@pytest.mark.parametrize(
    ("payload", "place"),
    [
        ({"id": "7"}, "payload.id"),
        ({"id": 7, "lines": [{"sku": "x"}, {"sku": "y", "count": 0}]}, "payload.lines[1].count"),
        ({}, "payload"),
        (None, "payload"),
        ([1], "payload"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_its_place(schema: Any, payload: object, place: str) -> None:
    with pytest.raises(InvalidMessage, match="does not fit") as caught:
        schemas(schema).check(Message(type="order", payload=payload))
    assert caught.value.field == place
    assert "'order'" in caught.value.remedy


@BOTH
def test_other_types_take_any_payload(schema: Any) -> None:
    made = schemas(schema)
    made.check(Message(type="other", payload="anything"))
    assert ("order" in made, "other" in made) == (True, False)


def test_a_later_schema_replaces_the_earlier() -> None:
    made = schemas(Order)
    made.register("order", dict[str, int])
    made.check(Message(type="order", payload={"anything": 1}))


@pytest.mark.parametrize("schema", [{"type": "nothing"}, {"pattern": "("}, {"properties": 3}, 7, "Order"])
def test_a_schema_that_is_none_is_refused_when_registered(schema: Any) -> None:
    with pytest.raises(InvalidSetting, match="schema of 'order'"):
        schemas(schema)


@pytest.mark.parametrize("reference", ["https://schemas.invalid/order.json", "file:///etc/hostname"])
def test_a_schema_never_fetches_another_document(reference: str) -> None:
    with pytest.raises(InvalidSetting) as caught:
        schemas({"$ref": reference})
    assert f"{reference} lies outside the schema" in str(caught.value.value)


def test_a_schema_may_refer_to_its_own_parts() -> None:
    made = schemas({"$defs": {"id": {"type": "integer"}}, "properties": {"id": {"$ref": "#/$defs/id"}}})
    with pytest.raises(InvalidMessage, match=r"payload\.id"):
        made.check(Message(type="order", payload={"id": "7"}))


def test_a_pattern_cannot_hang() -> None:
    made = schemas({"properties": {"a": {"pattern": "^(a+)+$"}}})
    with pytest.raises(InvalidMessage):
        made.check(Message(type="order", payload={"a": "a" * 5_000 + "b"}))


def test_without_the_extra_a_json_schema_names_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)
    with pytest.raises(ExtraRequired, match=r"Install godwit\[jsonschema\]"):
        schemas(JSON_SCHEMA)
    schemas(Order)


def test_an_impossible_type_is_refused() -> None:
    with pytest.raises(InvalidName):
        Schemas().register("", Order)
