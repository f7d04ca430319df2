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
    """Return a fresh UUID of version 7: ids made later sort later, which keeps indexes on them compact."""
    random = int.from_bytes(os.urandom(10))
    value = (
        (time.time_ns() // 1_000_000) << 80
        | 0x7 << 76
        | (random >> 68 & 0xFFF) << 64
        | 0b10 << 62
        | random & 0x3FFF_FFFF_FFFF_FFFF
    )
    text = f"{value:032x}"
    return MessageId(f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}")
