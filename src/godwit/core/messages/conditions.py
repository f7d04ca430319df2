"""CEL conditions on messages: checked and compiled once, shown only the fields they name, never raising when asked.

A condition sees the names in `FIELDS`. What it says about the payload is read from the expression, and only those parts
are handed over: converting a whole payload of 10 KB costs hundreds of times more than the comparison.
Comprehension macros are refused: a nested one can run for seconds on a small message.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterator
from functools import cache
from importlib.machinery import PathFinder
from typing import Any, Final, NamedTuple

import msgspec

from godwit.core.errors import InvalidCondition, listed
from godwit.core.messages.message import Message, MessageMetadata

MAX_CONDITION_CHARACTERS: Final = 1_000
MACROS: Final = frozenset({"map", "filter", "all", "exists", "exists_one", "transformList", "transformMap", "bind"})
FUNCTIONS: Final = frozenset(
    {
        *("has", "size", "contains", "startsWith", "endsWith", "matches"),
        *("int", "uint", "double", "string", "bytes", "timestamp", "duration"),
        *("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear"),
        *("getHours", "getMinutes", "getSeconds", "getMilliseconds"),
    }
)
_METADATA: Final = tuple(field.name for field in msgspec.structs.fields(MessageMetadata))
FIELDS: Final[dict[str, Callable[[Message], Any]]] = {
    "id": lambda message: message.id,
    "type": lambda message: message.type,
    "kind": lambda message: message.kind.value,
    "queue": lambda message: message.queue,
    "priority": lambda message: int(message.effective_priority),
    "ordering_key": lambda message: message.ordering_key,
    "payload": lambda message: message.payload,
    "attributes": lambda message: message.attributes,
    "metadata": lambda message: {name: getattr(message.metadata, name) for name in _METADATA},
}
_KEYWORDS: Final = frozenset({"true", "false", "null", "in"})
_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s+|//[^\n]*)
    | (?P<raw>(?:[rR][bB]?|[bB][rR])(?:'''.*?'''|\"\"\".*?\"\"\"|'[^'\n]*'|"[^"\n]*"))
    | (?P<text>[bB]?(?:'''(?:\\.|[^\\])*?'''|\"\"\"(?:\\.|[^\\])*?\"\"\"|'(?:\\.|[^'\\\n])*'|"(?:\\.|[^"\\\n])*"))
    | (?P<number>\d[\w.]*)
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SYNTAX_ERROR: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (?:Syntax error: )?(.*)")
_PLAIN_TEXT: Final = re.compile(r"""(['"])([^'"\\\n]*)\1""")

Tree = dict[str, Any]
"""The parts of a value a condition names: {"country": WHOLE, "address": {"city": WHOLE}}."""
WHOLE: Final = None


class Token(NamedTuple):
    """A word of a condition and where it begins."""

    sort: str
    text: str
    column: int


class Answer(msgspec.Struct, frozen=True):
    """Whether a message meets a condition; `problem` says why it could not be asked, which counts as no."""

    holds: bool
    problem: str | None = None


class Condition:
    """A CEL expression over a message; calling it never raises.

    A message it cannot be asked about (a field is missing, types do not fit, the answer is no boolean) does not meet
    it. Such failures are counted; the first is reported.
    """

    __slots__ = ("_fields", "_program", "_report", "failures", "source")

    def __init__(self, source: str, *, report: Callable[[str, str], None] | None = None) -> None:
        self.source = source
        self.failures = 0
        self._report = report
        self._program = _compiled(source)
        tree = _named(source, list(tokens(source)), set(self._program.variables()))
        self._fields = tuple((name, FIELDS[name], parts) for name, parts in tree.items())

    def __call__(self, message: Message) -> bool:
        """Say whether `message` meets the condition."""
        answer = self.ask(message)
        if answer.problem is not None:
            self.failures += 1
            if self.failures == 1 and self._report is not None:
                self._report(self.source, answer.problem)
        return answer.holds

    def ask(self, message: Message) -> Answer:
        """Say whether `message` meets the condition, or why that cannot be said; nothing is counted."""
        try:
            shown = {name: _part(read(message), parts) for name, read, parts in self._fields}
            result = self._program.execute(shown)
        except KeyError as error:
            return Answer(
                holds=False, problem=f"it has no field {error.args[0]!r}" if error.args else "a field is missing"
            )
        except Exception as error:  # noqa: BLE001 - the library raises a different built-in error for each misfit
            return Answer(holds=False, problem=str(error).partition(".")[0])
        if type(result) is not bool:
            return Answer(holds=False, problem=f"the result is {type(result).__name__}, not true or false")
        return Answer(holds=result)

    def __repr__(self) -> str:
        return f"Condition({self.source!r})"


def _part(value: Any, parts: Tree | None) -> Any:
    """Return as much of `value` as the tree names; what cannot have parts keeps its type."""
    if parts is WHOLE:
        return value
    if isinstance(value, dict):
        return {key: _part(value[key], inner) for key, inner in parts.items() if key in value}
    return [] if isinstance(value, list | tuple) else value


def tokens(source: str) -> Iterator[Token]:
    """Split a condition into words; spaces and comments are left out."""
    for match in _TOKEN.finditer(source):
        sort = match.lastgroup or "mark"
        if sort != "space":
            yield Token(sort, match.group(), match.start() + 1)


def _compiled(source: str) -> Any:
    if not isinstance(source, str) or not source.strip():
        raise InvalidCondition(str(source), 0, "is empty", 'Write a CEL expression such as type == "urgent".')
    if len(source) > MAX_CONDITION_CHARACTERS:
        raise InvalidCondition(
            source,
            MAX_CONDITION_CHARACTERS + 1,
            f"is longer than {MAX_CONDITION_CHARACTERS:,} characters",
            "Split it into several rules.",
        )
    try:
        return _cel().compile(source)
    except ValueError as error:
        raise _syntax(source, str(error)) from None


def _syntax(source: str, report: str) -> InvalidCondition:
    found = _SYNTAX_ERROR.search(report)
    if found is None:
        return InvalidCondition(source, 0, "is not a CEL expression", "Look at the examples in docs/routing.md.")
    line, column, problem = int(found[1]), int(found[2]), found[3].partition(" expecting ")[0]
    before = sum(len(text) + 1 for text in source.split("\n")[: line - 1])
    problem = problem.replace("'<EOF>'", "the end")
    return InvalidCondition(
        source, before + column, problem, "Correct it there; strings stand in quotes and both sides need a value."
    )


def _named(source: str, words: list[Token], variables: set[str]) -> dict[str, Tree | None]:
    """Return the fields a condition names, with their parts; refuse what it may not name or call."""
    tree: dict[str, Any] = {}
    for at, word in enumerate(words):
        if word.sort != "name" or word.text in _KEYWORDS:
            continue
        if _text(words, at + 1) == "(":
            _check_call(source, word)
        elif _text(words, at - 1) != ".":
            _check_field(source, word)
            _grow(tree, _path(words, at))
    for part in tree.get("metadata") or ():
        if part not in _METADATA:
            column = next(word.column for word in words if word.text == "metadata")
            raise InvalidCondition(source, column, f"metadata has no field {part!r}", f"It has {', '.join(_METADATA)}.")
    if set(tree) != variables:
        raise InvalidCondition(
            source,
            0,
            "uses a form that is not supported here",
            "Compare fields with values; docs/routing.md has examples.",
        )
    return tree


def _check_call(source: str, word: Token) -> None:
    if word.text in MACROS:
        raise InvalidCondition(
            source,
            word.column,
            f"{word.text}() is not allowed",
            "Write the comparisons out, or compute it in a transform.",
        )
    if word.text not in FUNCTIONS:
        raise InvalidCondition(
            source, word.column, f"there is no function {word.text!r}", f"There are {', '.join(sorted(FUNCTIONS))}."
        )


def _check_field(source: str, word: Token) -> None:
    if word.text not in FIELDS:
        raise InvalidCondition(
            source,
            word.column,
            f"a message has no field {word.text!r} (it has {listed(tuple(FIELDS))})",
            f'Use one of them, or quote it if it is text: "{word.text}".',
        )


def _path(words: list[Token], at: int) -> list[str]:
    """Return the names from a field inwards, as far as the text itself tells: payload.a["b"] is payload, a, b."""
    path = [words[at].text]
    while True:
        following = _text(words, at + 1)
        if following == "." and _text(words, at + 3) != "(" and at + 2 < len(words):
            path.append(words[at + 2].text)
            at += 2
        elif following == "[" and _text(words, at + 3) == "]" and (key := _PLAIN_TEXT.fullmatch(words[at + 2].text)):
            path.append(key[2])
            at += 3
        else:
            return path


def _grow(tree: Tree, path: list[str]) -> None:
    *inner, last = path
    for name in inner:
        if tree.get(name, tree) is WHOLE:
            return
        tree = tree.setdefault(name, {})
    tree[last] = WHOLE


def _text(words: list[Token], at: int) -> str:
    return words[at].text if 0 <= at < len(words) else ""


@cache
def _cel() -> Any:
    """Return the evaluator, without the command line that its package imports: 3 ms and 3 MB instead of 155 and 20."""
    package = importlib.util.find_spec("cel")
    spec = PathFinder.find_spec("cel", package.submodule_search_locations) if package else None
    if spec is None or spec.loader is None or not (spec.origin or "").endswith((".so", ".pyd")):
        import cel

        return cel
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
