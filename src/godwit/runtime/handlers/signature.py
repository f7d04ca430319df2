"""What a function must look like to handle messages, checked where it is registered."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

from godwit.core.errors import InvalidHandler
from godwit.core.messages.message import Message

_ONE_MESSAGE = "Write it with one parameter: async def {name}(message)."


def check_handler(handler: object) -> None:
    """Refuse what cannot handle a message: classes, generators, and functions that do not take one argument."""
    if isinstance(handler, type):
        raise refused(handler, "is a class", f"Register an instance: {handler.__name__}().")
    if not callable(handler):
        raise refused(handler, f"is of type {type(handler).__name__}", "Register a function that takes a message.")
    if any(kind(each) for each in (handler, getattr(handler, "__call__", None)) for kind in _GENERATORS):  # noqa: B004
        remedy = "Take the yield out; to publish further messages, await mq.enqueue() inside the handler."
        raise refused(handler, "is a generator, which would never run", remedy)
    try:
        signature = inspect.signature(handler, follow_wrapped=False)
    except (TypeError, ValueError):
        return  # one written in C need not say what it takes
    try:
        signature.bind(None)
    except TypeError:
        takes = ", ".join(map(str, signature.parameters.values())) or "nothing"
        raise refused(handler, f"takes {takes}", _ONE_MESSAGE.format(name=name_of(handler))) from None


_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)


def is_asynchronous(handler: Callable[..., Any]) -> bool:
    """Say whether a handler runs in the event loop; a plain function runs in a thread."""
    return any(map(inspect.iscoroutinefunction, (handler, getattr(handler, "__call__", None))))  # noqa: B004


def annotation_of(handler: Callable[..., Any], names: Mapping[str, Any]) -> Any:
    """Return the type of a handler's parameter, None where it has none; `names` are known where it is registered."""
    # One parameter at a place where messages are registered: what a decorator hides is what its author wrote.
    function = inspect.unwrap(handler)
    if not inspect.isroutine(function):
        function = getattr(function, "func", None) or type(function).__call__
    try:
        first = next(iter(inspect.signature(handler).parameters.values()), None)
    except (TypeError, ValueError):
        return None
    if first is None or first.annotation is inspect.Parameter.empty or first.kind is inspect.Parameter.VAR_POSITIONAL:
        return None
    if not isinstance(first.annotation, str):
        return first.annotation
    try:
        return get_type_hints(function, localns=dict(names)).get(first.name)
    except (NameError, AttributeError, TypeError, SyntaxError) as error:
        if first.annotation.rpartition(".")[2] == "Message":  # often imported for the type checker alone
            return Message
        problem = f"has a parameter of type {first.annotation}, which is not known ({error})"
        remedy = "Import the type where the program runs, not under TYPE_CHECKING, or leave the annotation out."
        raise refused(handler, problem, remedy) from None


def name_of(handler: object) -> str:
    """Return what a handler is called in errors."""
    name = getattr(handler, "__qualname__", None) or type(handler).__qualname__
    return str(name).rpartition("<locals>.")[2]


def refused(handler: object, problem: str, remedy: str) -> InvalidHandler:
    """Return the error for a handler, with its file and line where it has one."""
    code = getattr(inspect.unwrap(handler) if callable(handler) else handler, "__code__", None)
    where = f"{Path(code.co_filename).name}, line {code.co_firstlineno}" if code is not None else "no source"
    return InvalidHandler(name_of(handler), where, problem, remedy)
