"""Where values are found: arguments, the environment, the file; each with its origin, each refused with its place."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path as FilePath
from typing import Any, Final

import msgspec

from godwit.config.addresses import Url
from godwit.config.keys import OTHER_WORDS, SETTINGS, Key, Variable
from godwit.config.toml_lines import Path, lines_of
from godwit.config.values import HIDDEN, OrNone, Reader, Text, Unreadable, numbered
from godwit.core.errors import ConfigurationError, listed, shown

_LIKE: Final = 0.6
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Level(IntEnum):
    """Who has the last word: the lowest number."""

    ARGUMENT = 1
    ENVIRONMENT = 2
    FILE = 3
    DEFAULT = 4


@dataclass(frozen=True, slots=True)
class FoundValue:
    """A value that was given, the source that gave it, and the place to blame."""

    value: Any
    level: Level
    origin: str


class Document:
    """A TOML document that knows its lines."""

    def __init__(self, text: str, name: str) -> None:
        self.name = name
        try:
            self.tables: dict[str, Any] = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            # tomllib names the line, or the end of the document.
            line = re.search(r"line (\d+)", str(error))
            where = f"{name}:{line[1] if line else text.count(chr(10)) + 1}"
            raise ConfigurationError(where, f"this is not TOML ({error})", "Correct the line.") from None
        self._lines = lines_of(text)

    def where(self, path: Path) -> str:
        """Return `file:line` of a key, or of the nearest table around it."""
        while path and path not in self._lines:
            path = path[:-1]
        return f"{self.name}:{self._lines[path]}" if path else self.name

    def read(
        self, table: object, path: Path, keys: Mapping[str, Key], also: Collection[str] = ()
    ) -> dict[str, FoundValue]:
        """Return what a table says, by the names of `keys`; refuse all that is not among them or `also`."""
        if not isinstance(table, dict):
            raise ConfigurationError(
                self.where(path), f"{path[-1]} is {shown(table)}", f"Write a table: {' = ..., '.join(keys)} = ..."
            )
        return dict(self._pairs(table, path, "", keys, also))

    def _pairs(
        self, table: dict[str, Any], path: Path, prefix: str, keys: Mapping[str, Key], also: Collection[str]
    ) -> Iterator[tuple[str, FoundValue]]:
        for word, raw in table.items():
            name, here = prefix + word, (*path, word)
            if (key := keys.get(name)) is not None:
                yield name, self._value(key, raw, here)
            elif name in also:
                continue
            elif not any(known.startswith(f"{name}.") for known in (*keys, *also)):
                raise unknown_key(self.where(here), word, prefix, (*keys, *also))
            elif isinstance(raw, dict):
                yield from self._pairs(raw, here, f"{name}.", keys, also)
            else:
                table_name = ".".join(part for part in here if isinstance(part, str))
                raise ConfigurationError(self.where(here), f"{name} is {shown(raw)}", f"Write a table: [{table_name}].")

    def _value(self, key: Key, raw: object, path: Path) -> FoundValue:
        try:
            return FoundValue(key.reader.read(raw), Level.FILE, self.where(path))
        except Unreadable as error:
            fact = f"{key.name} is {displayed(key.reader, raw)}"
            raise ConfigurationError(self.where(path), fact, str(error) or f"Allowed: {key.reader.allowed}.") from None


def read_document(file: FilePath) -> Document:
    """Return the document in a file."""
    try:
        return Document(file.read_text(encoding="utf-8-sig"), str(file))
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        raise ConfigurationError(f"{file}:{line}", "this is not UTF-8", "Save the file as UTF-8.") from None
    except FileNotFoundError:
        raise ConfigurationError(str(file), "there is no such file", "Create it, or name another one.") from None
    except OSError as error:
        problem = f"the file cannot be read ({error.strerror})"
        raise ConfigurationError(str(file), problem, "Make it readable, or name another one.") from None


def from_environment(environment: Mapping[str, str], key: Key) -> FoundValue | None:
    """Return what the variables of a key say; an empty one says nothing."""
    given = [
        (variable.name, parsed(variable, key, text))
        for variable in key.variables
        if (text := environment.get(variable.name, "").strip())
    ]
    given = [(name, value) for name, value in given if value is not msgspec.UNSET]
    if not given:
        return None
    (first, value), *others = given
    for other, differing in others:
        if key.must_agree and differing != value:
            raise ConfigurationError(
                f"environment {first}, {other}",
                f"{first}={environment[first]} means {value} attempts, {other}={environment[other]} means {differing}",
                f"Unset one of them: {first} counts retries, {other} counts failures.",
            )
    return FoundValue(value, Level.ENVIRONMENT, f"env {first}")


def parsed(variable: Variable, key: Key, text: str) -> Any:
    """Return a variable's value, UNSET when its JSON object does not hold the member."""
    reader = variable.reader or key.reader
    reader = numbered(reader, reader.unit)
    try:
        if variable.member is None:
            return reader.parse(text)
        members = json_object(variable.name, text)
        return reader.read(members[variable.member]) if variable.member in members else msgspec.UNSET
    except Unreadable:
        what = variable.name if variable.member is None else f"{variable.member} of {variable.name}"
        remedy = f"Set it to {reader.allowed}, or unset it."
        fact = f"{what} is {displayed(reader, text)}"
        raise ConfigurationError(f"environment {variable.name}", fact, remedy) from None


def json_object(name: str, text: str) -> dict[str, Any]:
    """Return the JSON object in a variable; refuse members that no key knows."""
    known = {part.member: key for key in SETTINGS.values() for part in key.variables if part.name == name}
    members = tuple(member for member in known if member)
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        value = None
    if not isinstance(value, dict):
        remedy = f"Set it to a JSON object with any of {listed(members)}, or unset it."
        raise ConfigurationError(f"environment {name}", f"{name} is {shown(text)}", remedy)
    for word in value:
        if word not in known:
            raise unknown_key(f"environment {name}", word, "", members)
    return value


def from_arguments(arguments: Mapping[str, object], key: Key) -> FoundValue | None:
    """Return what the caller says about a key; None says nothing."""
    raw = arguments.get(key.name)
    if raw is None:
        return None
    reader = numbered(key.reader, "s")  # as everywhere in Python
    try:
        return FoundValue(reader.read(raw), Level.ARGUMENT, "argument")
    except Unreadable:
        fact = f"{key.name} is {displayed(reader, raw)}"
        raise ConfigurationError("argument", fact, f"Allowed: {reader.allowed}.") from None


def unknown_key(where: str, word: str, prefix: str, known: Collection[str]) -> ConfigurationError:
    """Return the error for a key that does not exist, with the one that was probably meant."""
    here = dict.fromkeys(name[len(prefix) :].partition(".")[0] for name in known if name.startswith(prefix))
    snake = _CAMEL.sub("_", word).lower().replace("-", "_")
    meant = OTHER_WORDS.get(snake, snake)
    elsewhere = [name for name in known if name.endswith(f".{meant}") or name == meant]
    close = difflib.get_close_matches(meant, list(here), n=1, cutoff=_LIKE)
    remedy = f"Known here: {', '.join(here)}."
    if elsewhere or close:
        guess = meant if meant in here else (elsewhere or close)[0]
        remedy = f"Did you mean {guess}? {remedy}"
    return ConfigurationError(where, f"there is no key {shown(prefix + word)}", remedy)


def displayed(reader: Reader, raw: object) -> str:
    """Return a refused value for an error text, unless it may be a secret."""
    inner = reader.reader if isinstance(reader, OrNone) else reader
    # A URL that could not be read may hold its password anywhere.
    secret = (isinstance(inner, Text) and inner.secret) or (
        isinstance(inner, Url) and (not inner.whole or "@" in str(raw) or "?" in str(raw))
    )
    return HIDDEN if secret else shown(raw)
