"""What a process has seen, written down outside Godwit: a killed process leaves a true record behind."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[Any]).decode


class Record:
    """A file that lines are only added to; each `write` is on the disk when it returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o644)

    def write(self, *lines: Sequence[object]) -> None:
        """Add lines."""
        os.write(self._file, b"".join(_encode(line) + b"\n" for line in lines))
        os.fsync(self._file)

    def close(self) -> None:
        """Release the file."""
        os.close(self._file)


def read(path: Path) -> list[list[Any]]:
    """Return the lines of a record; one that was cut off by a kill does not count."""
    whole, _, _ = path.read_bytes().rpartition(b"\n") if path.exists() else (b"", b"", b"")
    return [_decode(line) for line in whole.split(b"\n") if line]


def read_all(folder: Path, suffix: str) -> dict[str, list[list[Any]]]:
    """Return the lines of all records in a folder whose names end so, by what comes before."""
    return {path.stem: read(path) for path in sorted(folder.glob(f"*.{suffix}"))}


def lines_of(records: dict[str, list[list[Any]]], *kinds: str) -> Iterator[list[Any]]:
    """Give the lines of several records that begin with one of these words."""
    for lines in records.values():
        yield from (line for line in lines if line[0] in kinds)


def raised(flag: Path) -> bool:
    """Say whether a process has made this file."""
    return flag.exists()
