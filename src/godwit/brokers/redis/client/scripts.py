"""The Lua scripts of `godwit/brokers/redis/lua`, put together from their parts.

A script is a file with its contract on top; a line `--@include name` stands for the file of that name, comments left
out. A script that includes `_step` is taken back when it fails half-way: `_whole.lua` stands around it.
"""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha1
from importlib.resources import files
from typing import Final, NamedTuple

_INCLUDE: Final = re.compile(r"^--@include (\w+)$", re.MULTILINE)
_STEP: Final = "--@include _step\n"
_COMMENT: Final = re.compile(r"^\s*--.*\n|\s+--[^'\n]*$", re.MULTILINE)


class Script(NamedTuple):
    """A script as the server runs it."""

    name: str
    source: str
    sha: str
    before: str
    after: str
    """The points where tests let a process die."""


@cache
def script(name: str) -> Script:
    """Return the script `name`, its parts put in."""
    body = _read(name)
    if _STEP in body:
        body = _read("_whole").replace("--@body\n", body)
    source = _INCLUDE.sub(lambda found: _read(found[1]), body)
    source = _COMMENT.sub("", source)
    digest = sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, digest, f"redis.before_{name}", f"redis.after_{name}")


def _read(name: str) -> str:
    return (files("godwit.brokers.redis") / "lua" / f"{name}.lua").read_text("utf-8")
