"""URLs taken apart the same way on every Python."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote

from godwit.core.errors import InvalidSetting, UnknownOption, UnknownScheme

_FILE: Final = "sqlite:///"


def split_url(url: str) -> SplitResult:
    """Return the parts of a URL that may name several hosts.

    By hand: some Pythons refuse several hosts when one of them is an IPv6 address.
    """
    before, _, fragment = url.partition("#")
    before, _, query = before.partition("?")
    scheme, _, rest = before.partition("://")
    netloc, slash, path = rest.partition("/")
    return SplitResult(scheme.lower(), netloc, slash + path, query, fragment)


def sqlite_file(url: str) -> str:
    """Return the file that `sqlite:///relative.db` or `sqlite:////absolute/path.db` names; refuse other forms."""
    scheme, place, path, query, fragment = split_url(url)
    if scheme != "sqlite":
        raise UnknownScheme(scheme, ("sqlite",))
    if place or not url.lower().startswith(_FILE):
        named = f"{place or url.partition(':')[2]}{path}".strip("/") or "godwit.db"
        allowed = f"{_FILE}{named}, with three slashes, for a file in the working folder; four for an absolute path"
        raise InvalidSetting("url", url, allowed)
    if query or fragment:
        raise UnknownOption(url, next(iter(dict(parse_qsl(query, keep_blank_values=True))), fragment), ())
    file = unquote(path.removeprefix("/"))
    if not file or "\0" in file or Path(file).name == "":
        raise InvalidSetting("url", url, f"{_FILE}godwit.db: the name of a file after the three slashes")
    return file
