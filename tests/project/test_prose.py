"""Documents, docstrings and comments name who does something: none hides it behind "somebody" or "is told"."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

from tests.project.specification import DOCUMENT, ROOT

_HIDDEN = re.compile(
    r"\b(?:somebody|someone|anybody|nobody|everybody|whoever|(?:is|are|was|were) told|heard of)\b", re.IGNORECASE
)
_LEFT_ALONE = (DOCUMENT, ROOT / "docs" / "broker-semantics.md", ROOT / "docs" / "architecture.md")
"""Quoted requirements, the reference of the brokers, and the words of the eleven promises."""
_SAY = "say who it is: a worker, the broker, another process"


def _hidden(path: Path, lines: Iterator[tuple[int, str]]) -> Iterator[tuple[str, str]]:
    for number, line in lines:
        if match := _HIDDEN.search(line):
            yield f"{path.relative_to(ROOT).as_posix()}:{number}", match[0]


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Give a module's docstrings, messages of errors and logs, and comments; a single word may be a name."""
    source = path.read_text(encoding="utf-8")
    if not _HIDDEN.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def test_documents_name_their_subjects() -> None:
    documents = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path not in _LEFT_ALONE]
    assert len(documents) > 50
    found = {
        place: word
        for path in documents
        for place, word in _hidden(path, iter(enumerate(path.read_text(encoding="utf-8").splitlines(), 1)))
    }
    assert found == {}, _SAY


def test_the_source_names_its_subjects() -> None:
    modules = list((ROOT / "src").rglob("*.py"))
    assert len(modules) > 400
    assert dict(hidden for path in modules for hidden in _hidden(path, _texts(path))) == {}, _SAY


def test_docstrings_of_tests_name_their_subjects() -> None:
    docstrings = {
        place: word
        for path in (ROOT / "tests").rglob("*.py")
        if path != Path(__file__)
        for place, word in _hidden(path, _docstrings(path))
    }
    assert docstrings == {}, _SAY


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Give what stands alone as a text: docstrings of modules, classes and functions, and those of constants."""
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if _HIDDEN.search(source) else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value
