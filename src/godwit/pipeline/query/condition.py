"""Conditions that select rows of the lake: one boolean expression over named columns, and nothing else.

They look like the CEL of routing (`type == "order" && at >= timestamp("2026-01-01T00:00:00Z")`), but every word is
parsed here: the grammar has no function, subquery, path or cast, so no text of a user ever reaches Spark's own parser.

    either   = both ("||" both)*                 both  = simple ("&&" simple)*
    simple   = "!" simple | "(" either ")" | column "." search "(" text ")" | column relation value
             | column "in" "[" value ("," value)* "]"
    relation = == != < <= > >=                   search = contains | startsWith | endsWith
    value    = text | number | true | false | null | timestamp(text)
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, TypeVar

import msgspec

from godwit.core.errors import InvalidCondition, listed
from godwit.core.messages.conditions import MAX_CONDITION_CHARACTERS, Token, tokens

MAX_DEPTH: Final = 40
RELATIONS: Final = ("==", "!=", "<=", ">=", "<", ">")
SEARCHES: Final = ("contains", "startsWith", "endsWith")
_PAIRS: Final = frozenset({"==", "!=", "<=", ">=", "&&", "||"})
_WHOLE_NUMBER: Final = re.compile(r"\d+")
_QUOTES: Final = re.compile(r"\\.|\"", re.DOTALL)
_DECIMAL: Final = re.compile(r"\d+\.\d+")

LEAST_NUMBER: Final = -(2**63)
LARGEST_NUMBER: Final = 2**63 - 1
MOST_DIGITS: Final = 30

T = TypeVar("T", int, float)
Value = str | int | float | bool | datetime | None


class ColumnKind(StrEnum):
    """The kind of a column's values."""

    TEXT = "text"
    NUMBER = "a number"
    TIME = "a time"


class Compare(msgspec.Struct, frozen=True):
    """A column compared with one value; null is only equal or unequal."""

    column: str
    relation: str
    value: Value


class OneOf(msgspec.Struct, frozen=True):
    """A column that has one of several values."""

    column: str
    values: tuple[Value, ...]


class Search(msgspec.Struct, frozen=True):
    """A text column that contains, starts with or ends with a text."""

    column: str
    how: str
    text: str


class Not(msgspec.Struct, frozen=True):
    """The rows that the inner expression does not select, rows without a value included."""

    inner: Expression


class Both(msgspec.Struct, frozen=True):
    """The rows that all parts select."""

    parts: tuple[Expression, ...]


class Either(msgspec.Struct, frozen=True):
    """The rows that any part selects."""

    parts: tuple[Expression, ...]


Expression = Compare | OneOf | Search | Not | Both | Either


def parse(source: str, columns: Mapping[str, ColumnKind]) -> Expression:
    """Return the expression of a condition; raise `InvalidCondition` with the position and the remedy."""
    if len(source) > MAX_CONDITION_CHARACTERS:
        raise InvalidCondition(
            source, 0, f"is longer than {MAX_CONDITION_CHARACTERS:,} characters", "Select in several steps."
        )
    return _Parser(source, columns).whole()


class _Parser:
    """Parses words from left to right; each method parses one rule of the grammar."""

    def __init__(self, source: str, columns: Mapping[str, ColumnKind]) -> None:
        self._source, self._columns = source, columns
        self._words = _joined(list(tokens(source)))
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        if not self._words:
            raise self._wrong("is empty", 'Write a comparison such as type == "order".')
        expression = self._either()
        if self._at < len(self._words):
            raise self._wrong(f"{self._text!r} is not expected here", "Join comparisons with && or ||.")
        return expression

    def _either(self) -> Expression:
        return self._joined_by("||", lambda: self._joined_by("&&", self._simple, Both), Either)

    def _joined_by(self, mark: str, part: Callable[[], Expression], join: type[Both | Either]) -> Expression:
        parts = [part()]
        while self._text == mark:
            self._at += 1
            parts.append(part())
        return parts[0] if len(parts) == 1 else join(tuple(parts))

    def _simple(self) -> Expression:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._wrong(f"is nested deeper than {MAX_DEPTH} levels", "Write it flatter.")
        try:
            if self._text == "!":
                self._at += 1
                return Not(self._simple())
            if self._text == "(":
                self._at += 1
                inner = self._either()
                self._take(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Expression:
        column = self._column()
        if self._text == ".":
            return self._search(column)
        if self._text == "in":
            self._at += 1
            return OneOf(column, self._values(column))
        relation = self._text
        if relation not in RELATIONS:
            raise self._wrong(
                f"{column!r} is not followed by a comparison", f"Write one of {' '.join(RELATIONS)}, or in [...]."
            )
        self._at += 1
        value = self._value(column)
        if value is None and relation not in {"==", "!="}:
            raise self._wrong("null is neither more nor less than anything", "Compare it with == or !=.", back=1)
        return Compare(column, relation, value)

    def _search(self, column: str) -> Search:
        self._at += 1
        how = self._text
        if how not in SEARCHES:
            raise self._wrong(f"there is no {how!r} here", f"There are {', '.join(SEARCHES)}.")
        if self._columns[column] is not ColumnKind.TEXT:
            raise self._wrong(f"{column!r} holds {self._columns[column]}, not text", "Compare it with == or <.")
        self._at += 1
        self._take("(")
        text = self._value(column)
        if not isinstance(text, str):
            raise self._wrong(f"{how} searches for text", "Put it in quotes.", back=1)
        self._take(")")
        return Search(column, how, text)

    def _column(self) -> str:
        word = self._word
        if word is None or word.sort != "name" or word.text not in self._columns:
            names = listed(tuple(self._columns))
            what = "is not complete" if word is None else f"there is no column {word.text!r} (there are {names})"
            raise self._wrong(what, "A comparison begins with a column; text stands in quotes.")
        self._at += 1
        return word.text

    def _values(self, column: str) -> tuple[Value, ...]:
        self._take("[")
        values = [self._value(column)]
        while self._text == ",":
            self._at += 1
            values.append(self._value(column))
        self._take("]")
        if None in values:
            raise self._wrong("null cannot be in a list", f"Write {column} == null || {column} in [...].", back=1)
        return tuple(values)

    def _value(self, column: str) -> Value:
        word = self._word
        if word is None:
            raise self._wrong("ends before a value", "Both sides of a comparison need one.")
        if word.text == "timestamp":
            return self._time(column)
        self._at += 1
        if word.text == "null":
            return None
        negative = word.text == "-"
        if negative:
            word, self._at = self._word or word, self._at + 1
        value = self._plain(word, negative=negative)
        sort = ColumnKind.TEXT if isinstance(value, str) else ColumnKind.NUMBER
        if sort is not self._columns[column]:
            wanted = self._columns[column]
            remedy = 'Write timestamp("2026-01-31T00:00:00Z").' if wanted is ColumnKind.TIME else f"Give it {wanted}."
            raise self._wrong(f"{column!r} holds {wanted} and {word.text} is {sort}", remedy, back=1)
        return value

    def _plain(self, word: Token, *, negative: bool) -> str | int | float:
        if word.sort == "text" and not negative and (text := _unquoted(word.text)) is not None:
            return text
        if word.sort == "number" and _WHOLE_NUMBER.fullmatch(word.text):
            return self._in_range(word, -int(word.text) if negative else int(word.text))
        if word.sort == "number" and _DECIMAL.fullmatch(word.text):
            return self._in_range(word, -float(word.text) if negative else float(word.text))
        raise self._wrong(f"{word.text} is not a value", "Write text in quotes, a number, a timestamp or null.", back=1)

    def _in_range(self, word: Token, value: T) -> T:
        if not LEAST_NUMBER <= value <= LARGEST_NUMBER:
            shown = word.text if len(word.text) < MOST_DIGITS else f"a number of {len(word.text)} digits"
            remedy = f"Columns hold {LEAST_NUMBER:,} to {LARGEST_NUMBER:,}."
            raise self._wrong(f"{shown} is more than a column can hold", remedy, back=1)
        return value

    def _time(self, column: str) -> datetime:
        if self._columns[column] is not ColumnKind.TIME:
            raise self._wrong(f"{column!r} holds {self._columns[column]}, not a time", "Compare it with that.")
        self._at += 1
        self._take("(")
        word, self._at = self._word, self._at + 1
        try:
            moment = datetime.fromisoformat(_unquoted(word.text) or "" if word else "")
            moment = moment if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            moment = None
        if moment is None or moment.tzinfo is None:
            raise self._wrong(
                "this is not a time with its zone", 'Write timestamp("2026-01-31T00:00:00Z").', back=1
            ) from None
        self._take(")")
        return moment

    def _take(self, mark: str) -> None:
        if self._text != mark:
            actual = f"{self._text!r}" if self._word else "the end"
            raise self._wrong(f"{actual} stands where {mark!r} is expected", f"Put {mark!r} there.")
        self._at += 1

    @property
    def _word(self) -> Token | None:
        return self._words[self._at] if self._at < len(self._words) else None

    @property
    def _text(self) -> str:
        return self._word.text if self._word else ""

    def _wrong(self, problem: str, remedy: str, *, back: int = 0) -> InvalidCondition:
        at = self._at - back
        column = self._words[at].column if 0 <= at < len(self._words) else 0
        return InvalidCondition(self._source, column, problem, remedy)


def _joined(words: Sequence[Token]) -> list[Token]:
    """Return the words with adjacent signs joined to operators of two characters."""
    joined: list[Token] = []
    for word in words:
        last = joined[-1] if joined else None
        together = f"{last.text}{word.text}" if last else ""
        if last and together in _PAIRS and last.column + 1 == word.column:  # "a = = b" is not "a == b"
            joined[-1] = Token("mark", together, last.column)
        else:
            joined.append(word)
    return joined


def _unquoted(text: str) -> str | None:
    """Return the content of a quoted text, by JSON's rules for escapes; None when it is no such text."""
    if len(text) < len('""') or text[0] != text[-1] or text[0] not in "'\"" or text[:3] in {"'''", '"""'}:
        return None
    inner = text[1:-1]
    if text[0] == "'":  # JSON has only the other quotes
        inner = _QUOTES.sub(lambda match: {"\\'": "'", '"': '\\"'}.get(match[0], match[0]), inner)
    try:
        text = str(json.loads(f'"{inner}"'))
        text.encode()  # half a character is no text
    except ValueError:
        return None
    return text
