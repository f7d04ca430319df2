"""Names and ids: what they are called, which are allowed, how new ids are made."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from typing import Final, NewType, TypeAlias

from godwit.core.errors import InvalidName

QueueName: TypeAlias = str
GroupName: TypeAlias = str
MessageId: TypeAlias = str
"""Names that callers choose are plain strings to a type checker: `Message(queue="orders")` needs no ceremony."""

AckId = NewType("AckId", str)

DEFAULT_GROUP = GroupName("default")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@/+-]{0,254}")
_NAME_ALLOWED = "1 to 255 of the characters A-Z a-z 0-9 . _ : @ / + -, beginning with a letter or digit"
_ID_ALLOWED = "1 to 255 printable ASCII characters without spaces"
_TYPE_ALLOWED = "1 to 100 printable characters"
_ID_LENGTH = 255
_TYPE_LENGTH = 100
_WORKER_LENGTH = 255


def queue_name(name: str) -> QueueName:
    """Return `name` if it can name a queue."""
    return QueueName(_checked("queue", name))


def group_name(name: str) -> GroupName:
    """Return `name` if it can name a group."""
    return GroupName(_checked("group", name))


def _checked(what: str, name: str) -> str:
    if not isinstance(name, str) or not is_name(name):
        raise InvalidName(what, name, _NAME_ALLOWED)
    return name


@lru_cache(maxsize=1024)
def is_name(name: str) -> bool:
    """Say whether a queue or group can have this name; a process uses few, each for many messages."""
    return _NAME.fullmatch(name) is not None


def is_message_id(name: str) -> bool:
    """Say whether a message can have this id."""
    return 0 < len(name) <= _ID_LENGTH and name.isascii() and name.isprintable() and " " not in name


def check_message_id(name: str) -> None:
    """Refuse what cannot be a message id."""
    if not (isinstance(name, str) and is_message_id(name)):
        raise InvalidName("message id", name, _ID_ALLOWED)


UUID_VARIANT: Final = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
"""The two bits of a UUID that say how to read it, in the hexadecimal digit that holds them."""

is_plain_id: Final = re.compile(r"[!#-\[\]-~]{1,255}").fullmatch
"""Says whether a text is an id that JSON carries without escapes, as nearly all do."""


@lru_cache(maxsize=1024)
def is_type(name: str) -> bool:
    """Say whether messages can be of this type; a process uses few, as of names."""
    return 0 < len(name) <= _TYPE_LENGTH and name.isprintable()


def check_type(name: str) -> None:
    """Refuse what cannot be a message type."""
    if not (isinstance(name, str) and is_type(name)):
        raise InvalidName("message type", name, _TYPE_ALLOWED)


@lru_cache(maxsize=1024)
def is_worker(name: str) -> bool:
    """Say whether a worker can have this name, which leases, journal and store keep."""
    return len(name) <= _WORKER_LENGTH and name.isprintable()


def new_message_id() -> MessageId:
    """Return a fresh UUID of version 7: ids made later sort later, which keeps indexes on them compact.

    Those made one after the other by one process are of one family, 32 to each, as long as the millisecond is the same.
    """
    global _present  # noqa: PLW0603 - one pair, replaced as a whole: threads may read it at any time
    try:
        tail = _tails.pop()
    except IndexError:
        tail = _more_tails()
    now_ms = time.time_ns() // 1_000_000
    known_ms, head = _present
    if now_ms != known_ms:
        digits = f"{now_ms:012x}"
        head = f"{digits[:8]}-{digits[8:]}-7"
        _present = (now_ms, head)
    return head + tail


def _more_tails() -> str:
    """Make the ends of the next ids; return one of them."""
    many = os.urandom(_BYTES * _AT_ONCE).hex()
    for start in range(0, len(many), 2 * _BYTES):
        one = many[start : start + 2 * _BYTES]
        if start % (2 * _BYTES * _FAMILY) == 0:
            family = one[:3]
        _tails.append(f"{family}-{UUID_VARIANT[one[3]]}{one[4:7]}-{one[7:19]}")
    return _tails.pop()


def family_of(message_id: str) -> str:
    """Return what ids of one family have in common: of a UUID of version 7 all but its last 64 bits, else all."""
    if len(message_id) == _UUID_LENGTH and message_id[14] == "7" and message_id[13] == message_id[18] == "-":
        return message_id[:18]
    return message_id


_AT_ONCE = 64
_BYTES = 10
_FAMILY = 32
_UUID_LENGTH = 36
_present = (-1, "")
"""The last millisecond in which an id was made, and how ids begin that are made in it."""
_tails: list[str] = []
"""Random ends of the next ids: asking the system for each costs more than all else. Never shared with a child."""
os.register_at_fork(after_in_child=_tails.clear)
