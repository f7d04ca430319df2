"""What payloads of a message type look like: the producer refuses what does not fit, the worker dead-letters it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from godwit.core.errors import ExtraRequired, InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.messages.payload_types import converter, misfit, path_of
from godwit.core.names import check_type

Check = Callable[[Any], None]


class Schemas:
    """The payload schemas of message types; a type without one takes any payload."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        """What raises `InvalidMessage`, naming the place, when a payload of that type does not fit."""

    def register(self, type: str, schema: type[Any] | Mapping[str, Any]) -> None:
        """Let payloads of `type` fit `schema`: a msgspec Struct, a dataclass, a pydantic 2 model, or a JSON Schema.

        A JSON Schema needs `godwit[jsonschema]`; references to other documents are refused.
        """
        check_type(type)
        self.checks[type] = _json_schema(type, schema) if isinstance(schema, Mapping) else _typed(type, schema)

    def __contains__(self, type: str) -> bool:
        return type in self.checks

    def check(self, message: Message) -> None:
        """Raise `InvalidMessage`, naming the place, when the payload does not fit its type's schema."""
        check = self.checks.get(message.type)
        if check is not None:
            check(message.payload)


def _remedy(type: str) -> str:
    return f"Send what the schema of type {type!r} asks for, or register another schema."


def _typed(type: str, schema: Any) -> Check:
    return converter(schema, what=f"schema of {type!r}", remedy=_remedy(type))


def _json_schema(type: str, schema: Mapping[str, Any]) -> Check:
    try:
        import jsonschema_rs
    except ImportError as error:
        raise ExtraRequired(f"The JSON Schema of type {type!r}", "jsonschema") from error
    try:
        # Patterns that cannot backtrack, and no fetching: a schema is data and shall neither hang nor call out.
        validator = jsonschema_rs.validator_for(
            dict(schema), retriever=_refuse, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError) as error:
        problem = str(error).partition("\n")[0]
        raise InvalidSetting(
            f"schema of {type!r}", problem, "a valid JSON Schema without references elsewhere"
        ) from error

    def check(payload: Any) -> None:
        if validator.is_valid(payload):
            return
        error = next(validator.iter_errors(payload))
        raise misfit(path_of(tuple(error.instance_path)), error.message, _remedy(type))

    return check


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} lies outside the schema")
