"""Records of what publishers and workers did, one file each, for the reconciliation.

They are independent of the broker's file, so that a fault of the broker cannot hide in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec


class Accepted(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A publisher got a receipt for this message. `doomed`: its handling must fail for good."""

    id: str
    queue: str
    doomed: bool


class Handled(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A worker handled this message, the `turn`th of its ordering key."""

    id: str
    queue: str
    group: str
    worker: str
    at_ns: int
    key: str | None
    turn: int


class ProcessSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a process of the demo. `forget` leaves out the n-th line of its record."""

    name: str
    url: str
    record: str
    number: int
    seed: int
    messages: int = 0
    forget: int = 0


class Record:
    """A file that grows by lines; a line is on disk when `add` returns."""

    def __init__(self, path: str, *, forget: int = 0) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._count, self._forget = 0, forget

    def add(self, entries: Iterable[Accepted | Handled]) -> None:
        """Append entries and wait for the disk."""
        lines = []
        for entry in entries:
            self._count += 1
            if self._count != self._forget:
                lines.append(msgspec.json.encode(entry) + b"\n")
        os.write(self._file, b"".join(lines))
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


_decoder: msgspec.json.Decoder[Any] = msgspec.json.Decoder(Accepted | Handled)


def read(paths: Iterable[Path]) -> Iterator[Accepted | Handled]:
    """Yield all entries of some files; a last line cut off by a kill is skipped."""
    for path in sorted(paths):
        whole, _, _cut_off = path.read_bytes().rpartition(b"\n")
        yield from (_decoder.decode(line) for line in whole.splitlines())


def settings_from(argument: str) -> ProcessSettings:
    """Parse the settings that the runner put on the command line."""
    return msgspec.json.decode(argument, type=ProcessSettings)
