"""Output of a command: results on stdout, everything else on stderr; colours only on a terminal."""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
from rich.console import Console

from godwit.cli.exits import Exit

PIPED_WIDTH: Final = 1_000
"""Wide enough that a table in a pipe or file is never cut; rich would assume 80 columns."""


def results() -> Console:
    """Return the console for results."""
    return _console(stderr=False)


def remarks() -> Console:
    """Return the console for remarks to a person."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else PIPED_WIDTH
    return Console(file=stream, width=width, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """Print one JSON document on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def print_error(name: str, fact: str, remedy: str, code: Exit, *, as_json: bool) -> None:
    """Print an error on stderr: as one JSON document, or as sentences."""
    if as_json:
        document = {"error": name, "fact": fact, "remedy": remedy, "exit_code": int(code)}
        sys.stderr.write(msgspec.json.encode(document).decode() + "\n")
        return
    sentences = [
        sentence if sentence.endswith((".", "?", "!")) else f"{sentence}." for sentence in (fact, remedy) if sentence
    ]
    sys.stderr.write(visible(" ".join(sentences)) + "\n")


def visible(text: str) -> str:
    """Return text with control characters escaped, so that a message cannot send commands to a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter == "\n" else repr(letter)[1:-1] for letter in text)
