"""Handlers whose parameter is a payload's type get payloads converted to it; others get the message itself."""

from __future__ import annotations

import typing
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final, get_args, get_origin

from godwit.core.errors import InvalidMessage, InvalidSetting
from godwit.core.failures.judgement import BatchFailed
from godwit.core.messages.message import Message
from godwit.core.messages.payload_types import ALLOWED, Convert, converter
from godwit.runtime.handlers.signature import annotation_of, is_asynchronous, name_of, refused

_LISTS: Final = (list, Sequence)


def with_payloads(handler: Callable[..., Any], names: Mapping[str, Any], *, batch: bool) -> Callable[..., Any]:
    """Return a handler for messages: the given one, or one that converts their payloads for it."""
    wanted = annotation_of(handler, names)
    if wanted in {None, Any, object, typing.Any} or isinstance(wanted, typing.TypeVar):
        return handler
    if any(_is_message(arg) for arg in get_args(wanted)) and any(get_origin(arg) in _LISTS for arg in get_args(wanted)):
        return handler  # one message or a list of them: it looks for itself
    is_list = get_origin(wanted) in _LISTS or wanted in _LISTS
    element = next(iter(get_args(wanted)), None) if is_list else wanted
    takes_messages = _is_message(element)
    if batch and not is_list:
        raise refused(handler, "takes one message, and batch gives it a list", "Take a list, or leave batch out.")
    if not batch and is_list and takes_messages:
        raise refused(handler, "takes a list of messages, and gets one", "Give batch=True, or take one message.")
    if takes_messages or (batch and element in {None, Any, object}):
        return handler
    chosen = element if batch else wanted
    try:
        convert = converter(chosen, what="type", remedy=f"Send what the handler {name_of(handler)} takes.")
    except InvalidSetting:
        shown = getattr(chosen, "__qualname__", None) or str(chosen)
        raise refused(handler, f"takes {shown}", f"Take a Message, or {ALLOWED}.") from None
    return _for_lists(handler, convert) if batch else _for_one(handler, convert)


def _is_message(wanted: Any) -> bool:
    return any(isinstance(one, type) and issubclass(one, Message) for one in (wanted, *get_args(wanted)))


def _for_one(handler: Callable[..., Any], convert: Convert) -> Callable[..., Any]:
    @wraps(handler)
    async def in_the_loop(message: Message) -> Any:
        return await handler(convert(message.payload))

    @wraps(handler)
    def in_a_thread(message: Message) -> Any:
        return handler(convert(message.payload))

    return in_the_loop if is_asynchronous(handler) else in_a_thread


def _for_lists(handler: Callable[..., Any], convert: Convert) -> Callable[..., Any]:
    @wraps(handler)
    async def in_the_loop(messages: Sequence[Message]) -> Any:
        with _Batch(messages, convert) as payloads:
            return await handler(payloads) if payloads else None

    @wraps(handler)
    def in_a_thread(messages: Sequence[Message]) -> Any:
        with _Batch(messages, convert) as payloads:
            return handler(payloads) if payloads else None

    return in_the_loop if is_asynchronous(handler) else in_a_thread


class _Batch:
    """The payloads of a batch that fit; what does not fit fails alone, whatever becomes of the others."""

    def __init__(self, messages: Sequence[Message], convert: Convert) -> None:
        self._payloads: dict[int, Any] = {}
        self._errors: dict[int, BaseException] = {}
        for index, message in enumerate(messages):
            try:
                self._payloads[index] = convert(message.payload)
            except InvalidMessage as error:
                self._errors[index] = error

    def __enter__(self) -> list[Any]:
        return list(self._payloads.values())

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        places = list(self._payloads)
        if isinstance(error, BatchFailed):
            self._errors |= {places[at]: cause for at, cause in error.errors.items() if 0 <= at < len(places)}
        elif isinstance(error, Exception):
            self._errors |= dict.fromkeys(places, error)
        elif error is not None:
            return
        if self._errors:
            raise BatchFailed(self._errors) from error
