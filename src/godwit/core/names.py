"""Names and ids: what they are called, which are allowed, how new ids are made."""

from __future__ import annotations

import os
import re
import time
from functools import lru_cache
from typing import NewType, TypeAlias

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


def queue_name(name: str) -> QueueName:
    """Return `name` if it can name a queue."""
    return QueueName(_checked("queue", name))


def group_name(name: str) -> GroupName:
    """Return `name` if it can name a group."""
    return GroupName(_checked("group", name))


def _checked(what: str, name: str) -> str:
    if not isinstance(name, str) or not _fits(name):
        raise InvalidName(what, name, _NAME_ALLOWED)
    return name


@lru_cache(maxsize=1024)
def _fits(name: str) -> bool:
    """Say whether a queue or group can have this name; a process uses few, each for many messages."""
    return _NAME.fullmatch(name) is not None


def check_message_id(name: str) -> None:
    """Refuse what cannot be a message id."""
    if (
        not (isinstance(name, str) and 0 < len(name) <= _ID_LENGTH and name.isascii() and name.isprintable())
        or " " in name
    ):
        raise InvalidName("message id", name, _ID_ALLOWED)


def check_type(name: str) -> None:
    """Refuse what cannot be a message type."""
    if not (isinstance(name, str) and 0 < len(name) <= _TYPE_LENGTH and name.isprintable()):
        raise InvalidName("message type", name, _TYPE_ALLOWED)


def new_message_id() -> MessageId:
    """Return a fresh UUID of version 7: ids made later sort later, which keeps indexes on them compact.

    Those made one after the other by one process are of one family, 32 to each, as long as the millisecond is the same.
    """
    try:
        random = _random_digits.pop()
    except IndexError:
        many = os.urandom(10 * _AT_ONCE).hex()
        each = [many[start : start + 20] for start in range(0, len(many), 20)]
        *rest, random = [each[at - at % _FAMILY][:3] + one[3:] for at, one in enumerate(each)]
        _random_digits.extend(rest)
    milliseconds = f"{time.time_ns() // 1_000_000:012x}"
    variant = _VARIANT[random[3]]
    return MessageId(f"{milliseconds[:8]}-{milliseconds[8:]}-7{random[:3]}-{variant}{random[4:7]}-{random[7:19]}")


def family_of(message_id: str) -> str:
    """Return what ids of one family have in common: of a UUID of version 7 all but its last 64 bits, else all."""
    if len(message_id) == _UUID_LENGTH and message_id[14] == "7" and message_id[13] == message_id[18] == "-":
        return message_id[:18]
    return message_id


_AT_ONCE = 64
_FAMILY = 32
_UUID_LENGTH = 36
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
_random_digits: list[str] = []
"""Random digits for the next ids: asking the system for each costs more than all else. Never shared with a child."""
os.register_at_fork(after_in_child=_random_digits.clear)
