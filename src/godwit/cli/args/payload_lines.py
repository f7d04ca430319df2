"""Payloads from a file or a pipe, one JSON value per line, read twice: first to check, then to publish."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Final, Self

import msgspec

from godwit.core.errors import InvalidMessage

IN_MEMORY_BYTES: Final = 16 << 20
_decoder = msgspec.json.Decoder()


class PayloadLines:
    """Numbered payloads; blank lines are skipped. Only one line is in memory at a time."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._source.close()

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        self._source.seek(0)
        for number, line in enumerate(self._source, start=1):
            if text := line.strip():
                yield number, parse_payload(text, place=f"line {number}")


def parse_payload(text: bytes | str, *, place: str) -> Any:
    """Parse one JSON value; the error names its place, never its content."""
    try:
        return _decoder.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidMessage(
            place, f"is not JSON ({error})", 'Write a JSON value such as {"id": 7}, and a text in quotes: \'"hello"\'.'
        ) from None


def lines_of_file(path: Path) -> PayloadLines:
    """Return the lines of a file."""
    return PayloadLines(path.open("rb"))


def lines_of_stdin() -> PayloadLines:
    """Return the lines of standard input, spooled because they are read twice."""
    aside = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 # lives as long as the command
    shutil.copyfileobj(sys.stdin.buffer, aside)
    return PayloadLines(aside)
