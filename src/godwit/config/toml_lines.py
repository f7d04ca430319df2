"""On which line of a TOML document a key stands; tomllib reads values but keeps no lines.

The document was read by tomllib before, so this scanner need not recognise mistakes.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import Final

Path = tuple[str | int, ...]
"""A way into a document: names of keys, numbers of array items."""

_STRING: Final = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})'
    r"|'''.*?'''(?:'{0,2})"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'",
    re.DOTALL,
)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_BARE_VALUE: Final = re.compile(r"[^,\]}\n#]+")
_SPACE: Final = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def lines_of(text: str) -> dict[Path, int]:
    """Return the line (from 1) on which each key, table and array item of a valid TOML document begins."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.lines


class _Scanner:
    """Walks over a document once; `lines` fills up on the way."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_ends = [match.start() for match in re.finditer("\n", text)]
        self._tables_in: dict[Path, int] = {}
        self.lines: dict[Path, int] = {}

    def document(self) -> None:
        """Read headers and pairs to the end."""
        table: Path = ()
        while self._next():
            if self._next() == "[":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Path:
        self._at += 1
        in_array = self._next() == "["
        self._at += in_array
        *outer, last = self._key()
        path: Path = ()
        for name in outer:
            path = self._newest((*path, name))
            self._mark(path)
        path = (*path, last)
        self._mark(path)
        if in_array:
            self._tables_in[path] = self._tables_in.get(path, 0) + 1
        path = self._newest(path)
        self._mark(path)
        self._at += 1 + in_array
        return path

    def _newest(self, path: Path) -> Path:
        """Return the path of the last table of an array of tables, any other path as it is."""
        return (*path, self._tables_in[path] - 1) if path in self._tables_in else path

    def _pair(self, table: Path) -> None:
        path = table
        for name in self._key():
            path = (*path, name)
            self._mark(path)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> list[str]:
        names = [self._name()]
        while self._next() == ".":
            self._at += 1
            names.append(self._name())
        return names

    def _name(self) -> str:
        self._next()
        match = _STRING.match(self._text, self._at) or _BARE_KEY.match(self._text, self._at)
        word = self._take(match)
        return str(tomllib.loads(f"name = {word}")["name"]) if word[0] in "\"'" else word

    def _value(self, path: Path) -> None:
        match self._next():
            case "[":
                self._items(path)
            case "{":
                self._inline_table(path)
            case _:
                self._take(_STRING.match(self._text, self._at) or _BARE_VALUE.match(self._text, self._at))

    def _items(self, path: Path) -> None:
        self._at += 1
        number = 0
        while self._next() != "]":
            item = (*path, number)
            self._mark(item)
            self._value(item)
            number += 1
            if self._next() == ",":
                self._at += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._next() != "}":
            self._pair(path)
            if self._next() == ",":
                self._at += 1
        self._at += 1

    def _next(self) -> str:
        """Go past space and comments; return the character there, nothing at the end."""
        self._take(_SPACE.match(self._text, self._at))
        return self._text[self._at : self._at + 1]

    def _take(self, match: re.Match[str] | None) -> str:
        if match is None:
            raise AssertionError(f"not TOML at character {self._at}")
        self._at = match.end()
        return match[0]

    def _mark(self, path: Path) -> None:
        self.lines.setdefault(path, bisect_right(self._line_ends, self._at - 1) + 1)
