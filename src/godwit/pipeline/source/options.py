"""The options of a read, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from godwit.core.errors import InvalidSetting
from godwit.core.journal.shards import Position

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
COMMITTED: Final = "committed"
_SQLITE: Final = "sqlite:///"
_BOOLEANS: Final = {"true": True, "false": False}
_OFFSETS: Final = (
    'earliest, latest, committed, an instant with a zone, or JSON such as {"orders#0": {"epoch": ..., "seq": 7}}'
)
_positions = msgspec.json.Decoder(dict[str, Position])

Offsets = str | datetime | dict[str, Position]


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of which journals to read."""

    url: str
    queues: tuple[str, ...] = ()
    starting: Offsets = EARLIEST
    ending: Offsets = LATEST
    max_rows: int | None = None
    rows_per_partition: int | None = None
    fail_on_data_loss: bool = True
    reader: str | None = None
    partials: bool = False


NAMES: Final = (
    "url",
    "queues",
    "startingOffsets",
    "endingOffsets",
    "maxRowsPerTrigger",
    "rowsPerPartition",
    "failOnDataLoss",
    "reader",
    "partials",
)


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """Return the options of a read; refuse unknown ones."""
    texts = {name.lower(): value for name, value in given.items()}
    known = {name.lower() for name in NAMES}
    for name in given:
        if name.lower() not in known:
            raise InvalidSetting("option", name, ", ".join(NAMES))
    if not texts.get("url"):
        raise InvalidSetting("option url", texts.get("url"), "the broker's URL, such as sqlite:///godwit.db")
    options = ReadOptions(
        url=absolute_url(texts["url"]),
        queues=tuple(part.strip() for part in texts.get("queues", "").split(",") if part.strip()),
        starting=_offsets("startingOffsets", texts.get("startingoffsets", EARLIEST)),
        ending=_offsets("endingOffsets", texts.get("endingoffsets", LATEST)),
        max_rows=_whole("maxRowsPerTrigger", texts["maxrowspertrigger"]) if "maxrowspertrigger" in texts else None,
        rows_per_partition=_whole("rowsPerPartition", texts["rowsperpartition"])
        if "rowsperpartition" in texts
        else None,
        fail_on_data_loss=_boolean("failOnDataLoss", texts.get("failondataloss", "true")),
        reader=texts.get("reader") or None,
        partials=_boolean("partials", texts.get("partials", "false")),
    )
    if COMMITTED in (options.starting, options.ending) and options.reader is None:
        raise InvalidSetting("option reader", None, "the name whose committed positions are meant")
    return options


def reader_of(pipeline: str) -> str:
    """Return the name under which a pipeline holds the journal."""
    return f"pipeline {pipeline}"


def absolute_url(url: str) -> str:
    """Return a URL that names the same file from any folder: workers run in folders of their own."""
    path = url.removeprefix(_SQLITE)
    return f"{_SQLITE}{quote(str(Path(unquote(path)).absolute()))}" if url.startswith(_SQLITE) and path else url


def _offsets(option: str, text: str) -> Offsets:
    word = text.strip()
    if word.lower() in (EARLIEST, LATEST, COMMITTED):
        return word.lower()
    if word.startswith("{"):
        try:
            return _positions.decode(word)
        except msgspec.DecodeError as error:
            raise InvalidSetting(f"option {option}", text, f"{_OFFSETS} ({error})") from error
    try:
        instant = datetime.fromisoformat(word)
    except ValueError:
        instant = None
    if instant is None or instant.utcoffset() is None:
        raise InvalidSetting(f"option {option}", text, _OFFSETS)
    return instant


def _whole(option: str, text: str) -> int:
    if not re.fullmatch(r"[1-9][0-9]{0,11}", text.strip()):
        raise InvalidSetting(f"option {option}", text, "a whole number from 1")
    return int(text)


def _boolean(option: str, text: str) -> bool:
    if text.strip().lower() not in _BOOLEANS:
        raise InvalidSetting(f"option {option}", text, "true or false")
    return _BOOLEANS[text.strip().lower()]
