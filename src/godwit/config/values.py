"""From what a file or a variable says to a value: each reader knows its unit and the form it allows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from godwit.core.durations import FORMS, NotADuration, duration_of, parse_duration, written
from godwit.core.errors import InvalidArgumentError, InvalidSchedule, InvalidSetting
from godwit.core.failures.failure import ErrorType
from godwit.core.failures.retry import Strategy
from godwit.core.limits import LARGEST_COUNT
from godwit.core.queues import MOST_JOURNAL_ATTRIBUTES, as_names_of_attributes
from godwit.core.rate import Rate
from godwit.core.schedule.cron import parse_cron

NONE: Final = "none"
UNLIMITED: Final = "unlimited"
HIDDEN: Final = "***"
LONGEST: Final = timedelta(days=36_500)
_UNIT_WORDS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "d": "days"}
_NUMBER: Final = re.compile(r"[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_CRON_FIELDS: Final = 5
_LONGEST_NUMBER: Final = 40


class Unreadable(ValueError):
    """The value does not have the form its reader allows; its text, if it has one, is the remedy."""


class Reader(Protocol):
    """Reads one kind of value; refuses others with `Unreadable`."""

    @property
    def unit(self) -> str:
        """What a bare number counts in a variable; empty when it counts things."""
        ...

    @property
    def allowed(self) -> str:
        """The form that is allowed, for an error text."""
        ...

    def read(self, raw: object) -> Any:
        """Return the value that a file or an argument gives."""
        ...

    def parse(self, text: str) -> Any:
        """Return the value that an environment variable gives."""
        ...

    def show(self, value: Any) -> str:
        """Return a value as one would write it, without secrets."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Count:
    """A whole number."""

    least: int = 1
    most: int | None = None
    unit: str = ""

    @property
    def allowed(self) -> str:
        return f"a whole number, {self.least:,} " + ("or more" if self.most is None else f"to {self.most:,}")

    def read(self, raw: object) -> int:
        if not isinstance(raw, int) or isinstance(raw, bool) or raw < self.least:
            raise Unreadable
        if self.most is not None and raw > self.most:
            raise Unreadable
        return raw

    def parse(self, text: str) -> int:
        return self.read(as_number(text))

    def show(self, value: int) -> str:
        return str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimit(Count):
    """A number of attempts, or the word for as many as it takes."""

    @property
    def allowed(self) -> str:
        return f'a whole number, {self.least:,} or more, or "{UNLIMITED}"'

    def read(self, raw: object) -> int:
        return LARGEST_COUNT if raw == UNLIMITED else Count.read(self, raw)

    def parse(self, text: str) -> int:
        return self.read(UNLIMITED if text.lower() == UNLIMITED else as_number(text))

    def show(self, value: int) -> str:
        return UNLIMITED if value >= LARGEST_COUNT else str(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries(AttemptLimit):
    """A number of retries; as a value it is the number of attempts, the first included."""

    least: int = 0

    def read(self, raw: object) -> int:
        return LARGEST_COUNT if raw == UNLIMITED else Count.read(self, raw) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Any number within bounds."""

    least: float = 0.0
    most: float | None = None
    unit: str = ""

    @property
    def allowed(self) -> str:
        return f"a number, {self.least:g} " + ("or more" if self.most is None else f"to {self.most:g}")

    def read(self, raw: object) -> float:
        if not isinstance(raw, int | float) or isinstance(raw, bool) or not math.isfinite(raw) or raw < self.least:
            raise Unreadable
        if self.most is not None and raw > self.most:
            raise Unreadable
        return float(raw)

    def parse(self, text: str) -> float:
        return self.read(as_number(text))

    def show(self, value: float) -> str:
        return f"{value:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """A time span, written with its unit; `unit` is what a bare number counts in its environment variable.

    `bare` is what one counts in the file: only keys with a unit in their names have it.
    """

    unit: str = "ms"
    bare: str | None = None
    least: timedelta = timedelta(milliseconds=1)

    @property
    def allowed(self) -> str:
        bound = "0 or more" if not self.least else "above 0"
        forms = f"text such as {FORMS}, {bound}"
        return forms if self.bare is None else f"{_UNIT_WORDS[self.bare]} as a number, {bound}, or {forms}"

    def read(self, raw: object) -> timedelta:
        if isinstance(raw, timedelta):
            span = raw
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            span = self._counted(raw)
        elif isinstance(raw, str):
            span = _spanned(parse_duration, raw)
        else:
            raise Unreadable
        if not self.least <= span <= LONGEST:
            raise Unreadable
        return span

    def _counted(self, number: float) -> timedelta:
        if self.bare is not None or not number:
            return _spanned(duration_of, number, self.bare or self.unit)
        if not number > 0:
            raise Unreadable
        meant = written(_spanned(duration_of, number, self.unit))
        raise Unreadable(f'Write it with its unit: "{meant}" if it counts {_UNIT_WORDS[self.unit]}.')

    def parse(self, text: str) -> timedelta:
        return replace(self, bare=self.unit).read(as_number(text) if _NUMBER.fullmatch(text) else text)

    def show(self, value: timedelta) -> str:
        return written(value)


def _spanned(read: Callable[..., timedelta], *values: object) -> timedelta:
    try:
        return read(*values)
    except NotADuration:
        raise Unreadable from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """Text that passes a check, such as that of a name."""

    allowed: str = "text that is not empty"
    check: Callable[[str], object] = lambda _: None
    unit: str = ""
    secret: bool = False

    def read(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.strip() or "\0" in raw:
            raise Unreadable
        try:
            self.check(raw)
        except InvalidArgumentError:
            raise Unreadable from None
        return raw

    def parse(self, text: str) -> str:
        return self.read(text)

    def show(self, value: str) -> str:
        return HIDDEN if self.secret else value


@dataclass(frozen=True, slots=True)
class Choice:
    """Reads a value that is among a few words."""

    words: type[StrEnum]
    unit: str = ""

    @property
    def allowed(self) -> str:
        return "one of " + ", ".join(f'"{word}"' for word in self.words)

    def read(self, raw: object) -> StrEnum:
        if not isinstance(raw, str):
            raise Unreadable
        try:
            return self.words(raw)
        except ValueError:
            raise Unreadable from None

    def parse(self, text: str) -> StrEnum:
        return self.read(text.lower())

    def show(self, value: StrEnum) -> str:
        return value.value


@dataclass(frozen=True, slots=True)
class RateText:
    """How many messages in which time."""

    unit: str = ""
    allowed: str = 'a rate such as "14/s", "600/min" or "5/10s"'

    def read(self, raw: object) -> Rate:
        if not isinstance(raw, str):
            raise Unreadable
        try:
            return Rate(raw)
        except InvalidSetting:
            raise Unreadable from None

    def parse(self, text: str) -> Rate:
        return self.read(text)

    def show(self, value: Rate) -> str:
        return value.rate


@dataclass(frozen=True, slots=True)
class Flag:
    """Yes or no."""

    unit: str = ""
    allowed: str = "true or false"

    def read(self, raw: object) -> bool:
        if not isinstance(raw, bool):
            raise Unreadable
        return raw

    def parse(self, text: str) -> bool:
        return self.read({"true": True, "1": True, "false": False, "0": False}.get(text.lower()))

    def show(self, value: bool) -> str:  # noqa: FBT001
        return str(value).lower()


@dataclass(frozen=True, slots=True)
class StrategyByKind:
    """A table from kinds of errors to retry strategies."""

    unit: str = ""

    @property
    def allowed(self) -> str:
        kinds, strategies = (", ".join(words) for words in (ErrorType, Strategy))
        return f"a table from {kinds} to {strategies}"

    def read(self, raw: object) -> dict[str, Strategy]:
        if not isinstance(raw, dict):
            raise Unreadable
        try:
            return {ErrorType(kind).value: Strategy(word) for kind, word in raw.items()}
        except ValueError:
            raise Unreadable from None

    def parse(self, text: str) -> dict[str, Strategy]:
        raise Unreadable(text)

    def show(self, value: dict[str, Strategy]) -> str:
        return ", ".join(f"{kind} = {strategy.value}" for kind, strategy in value.items()) or NONE


@dataclass(frozen=True, slots=True)
class AttributeNames:
    """Reads a list of names of attributes; a variable separates them by commas."""

    unit: str = ""

    @property
    def allowed(self) -> str:
        return f'a list of at most {MOST_JOURNAL_ATTRIBUTES} names of attributes, such as ["tenant"]'

    def read(self, raw: object) -> tuple[str, ...]:
        if not isinstance(raw, list):
            raise Unreadable
        try:
            return as_names_of_attributes(raw)
        except InvalidArgumentError:
            raise Unreadable from None

    def parse(self, text: str) -> tuple[str, ...]:
        return self.read([name.strip() for name in text.split(",") if name.strip()])

    def show(self, value: tuple[str, ...]) -> str:
        return ", ".join(value) or NONE


@dataclass(frozen=True, slots=True)
class OrNone:
    """Any other reader's values, or the word none."""

    reader: Reader

    @property
    def unit(self) -> str:
        return self.reader.unit

    @property
    def allowed(self) -> str:
        return f'{self.reader.allowed}, or "{NONE}"'

    def read(self, raw: object) -> Any:
        return None if raw is None or raw == NONE else self.reader.read(raw)

    def parse(self, text: str) -> Any:
        return None if text.lower() == NONE else self.reader.parse(text)

    def show(self, value: Any) -> str:
        return NONE if value is None else self.reader.show(value)


def as_number(text: str) -> int | float:
    """Return the number that a variable's text is."""
    if _NUMBER.fullmatch(text) is None or len(text) > _LONGEST_NUMBER:
        raise Unreadable
    return int(text) if text.lstrip("+-").isdigit() else float(text)


def numbered(reader: Reader, unit: str) -> Reader:
    """Return a reader for which a bare number counts `unit` where the file would want one."""
    if isinstance(reader, OrNone):
        return OrNone(numbered(reader.reader, unit))
    return replace(reader, bare=reader.bare or unit) if isinstance(reader, Duration) else reader


def check_cron(expression: str) -> None:
    """Refuse what is not minute, hour, day of month, month, day of week, or would never come true."""
    if len(expression.split()) != _CRON_FIELDS:
        raise Unreadable
    try:
        parse_cron(expression)
    except InvalidSchedule:
        raise Unreadable from None
