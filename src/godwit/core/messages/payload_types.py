"""Types of payloads: what msgspec knows, dataclasses, and models of pydantic 2; payloads are checked and converted."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import msgspec

from godwit.core.error_text import error_text, type_name
from godwit.core.errors import InvalidMessage, InvalidSetting

Convert = Callable[[Any], Any]
"""Takes a payload and returns it as a type; raises `InvalidMessage`, naming the place, when it does not fit."""

_PLACE: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$(?P<path>.*)`)?", re.DOTALL)
ALLOWED: Final = "a msgspec Struct, a dataclass, a pydantic 2 model, or another type that msgspec knows"


def converter(wanted: Any, *, what: str, remedy: str) -> Convert:
    """Return what makes payloads into `wanted`; `what` names it where the type is unknown, `remedy` what to do then."""
    if _is_pydantic(wanted):
        return _pydantic_converter(wanted, remedy)
    try:
        info = msgspec.inspect.type_info(wanted)
    except Exception as error:
        raise InvalidSetting(what, wanted, ALLOWED) from error
    if isinstance(info, msgspec.inspect.CustomType):
        raise InvalidSetting(what, wanted, ALLOWED)

    def convert(payload: Any) -> Any:
        try:
            return msgspec.convert(payload, wanted)
        except msgspec.ValidationError as error:
            found = _PLACE.fullmatch(str(error))
            problem, path = (found["problem"], found["path"] or "") if found else (str(error), "")
            raise misfit(path, problem, remedy) from None
        except Exception as error:  # whatever a class of the application's own does when it is made
            raise misfit("", f"{type_name(error)}: {error_text(error)}", remedy) from error

    return convert


def misfit(path: str, problem: str, remedy: str) -> InvalidMessage:
    """Return the error for a payload that does not fit at a path, such as `.lines[2].amount`."""
    return InvalidMessage(f"payload{path}", f"does not fit: {problem}", remedy)


def path_of(steps: tuple[int | str, ...]) -> str:
    """Return a path as it is written behind `payload`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)


def _is_pydantic(wanted: Any) -> bool:
    return isinstance(wanted, type) and hasattr(wanted, "__pydantic_validator__")


def _pydantic_converter(wanted: Any, remedy: str) -> Convert:
    from pydantic import TypeAdapter, ValidationError  # it is there: the model comes from it

    adapter = TypeAdapter(wanted)

    def convert(payload: Any) -> Any:
        try:
            return adapter.validate_python(payload)
        except ValidationError as error:
            first = error.errors(include_url=False, include_context=False, include_input=False)[0]
            raise misfit(path_of(first["loc"]), first["msg"], remedy) from None
        except Exception as error:  # whatever a validator of the application's own does
            raise misfit("", f"{type_name(error)}: {error_text(error)}", remedy) from error

    return convert
