"""What payloads of a message type look like: the producer refuses what does not fit, the worker dead-letters it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from godwit.core.error_text import error_text, type_name
from godwit.core.errors import ExtraRequired, InvalidMessage, InvalidSetting
from godwit.core.messages.message import Message
from godwit.core.names import check_type

Check = Callable[[Any], None]
_PLACE: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)


class Schemas:
    """The payload schemas of message types; a type without one takes any payload."""

    def __init__(self) -> None:
        self.checks: dict[str, Check] = {}
        """What raises `InvalidMessage`, naming the place, when a payload of that type does not fit."""

    def register(self, type: str, schema: type[Any] | Mapping[str, Any]) -> None:
        """Let payloads of `type` fit `schema`: a msgspec Struct (or any type msgspec knows), or a JSON Schema.

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


def _refusal(type: str, path: str, problem: str) -> InvalidMessage:
    remedy = f"Send what the schema of type {type!r} asks for, or register another schema."
    return InvalidMessage(f"payload{path}", f"does not fit: {problem}", remedy)


def _typed(type: str, schema: Any) -> Check:
    try:
        msgspec.inspect.type_info(schema)
    except Exception as error:
        raise InvalidSetting(f"schema of {type!r}", schema, "a msgspec Struct or a JSON Schema") from error

    def check(payload: Any) -> None:
        try:
            msgspec.convert(payload, schema)
        except msgspec.ValidationError as error:
            found = _PLACE.fullmatch(str(error))
            problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
            raise _refusal(type, path, problem) from None
        except Exception as error:  # whatever a class of the application's own does when it is made
            raise _refusal(type, "", f"{type_name(error)}: {error_text(error)}") from error

    return check


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
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in error.instance_path)
        raise _refusal(type, path, error.message)

    return check


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} lies outside the schema")
