"""The rows of docs/specification.md as values; `python -m tests.project.specification` counts them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs" / "specification.md"
ROWS_PER_SPECIFICATION = {"000": 252, "001": 135, "002": 95, "003": 66, "004": 79}

Kind = Literal["shown", "open", "not taken", "half-filled"]
_ROW = re.compile(r"^\| (?P<id>\d{3}-\d{3}) \| (?P<requirement>.*?) \| (?P<where>.*?) \| (?P<test>.*?) \|$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One specification id and what shows it."""

    id: str
    requirement: str
    where: str
    test: str

    @property
    def kind(self) -> Kind:
        if "" in (self.requirement, self.where, self.test):
            return "half-filled"
        if self.where == "not taken":
            return "half-filled" if self.test in ("open", "not taken") else "not taken"
        opened = (self.where == "open", self.test == "open")
        if all(opened):
            return "open"
        return "half-filled" if any(opened) else "shown"

    @property
    def places(self) -> tuple[str, ...]:
        """The modules and documents named, as paths from the repository's root."""
        return tuple(_from_root(place) for place in _words(self.where)) if self.kind == "shown" else ()

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests named, as `path::name`."""
        return tuple(_words(self.test)) if self.kind == "shown" else ()


def read(document: str) -> list[Row]:
    """Return the table rows of a specification document; a line that looks like a row but is none is an error."""
    rows = []
    for line in document.splitlines():
        if not re.match(r"^\|\s*\d{3}-", line):
            continue
        match = _ROW.match(line)
        if match is None:
            raise ValueError(f"Not a row of four cells: {line!r}. Write `| 000-001 | requirement | where | test |`.")
        rows.append(Row(**{name: cell.strip() for name, cell in match.groupdict().items()}))
    return rows


def names_of_tests(path: Path) -> frozenset[str]:
    """Return the names of the tests in a file, methods as `Class::name`, without importing it."""
    names: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = (part for part in node.body if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef))
            names.update(f"{node.name}::{method.name}" for method in methods)
        elif isinstance(node, ast.Assign):
            # Hypothesis makes a test case of a state machine by `TestX = Machine.TestCase`.
            names.update(target.id for target in node.targets if isinstance(target, ast.Name))
    return frozenset(name for name in names if re.match(r"^(.*::)?[Tt]est", name))


def summary(rows: list[Row]) -> str:
    """Return one line that says how much of the specification is shown."""
    kinds = Counter(row.kind for row in rows)
    text = f"specification: {kinds['shown']} of {len(rows)} ids shown, "
    text += f"{kinds['open']} open, {kinds['not taken']} not taken"
    return text + (f", {kinds['half-filled']} half-filled" if kinds["half-filled"] else "")


def _words(cell: str) -> list[str]:
    return [word.strip().strip("`") for word in cell.split(",")]


def _from_root(place: str) -> str:
    return f"src/{place}" if place.startswith("godwit/") else place


if __name__ == "__main__":
    print(summary(read(DOCUMENT.read_text(encoding="utf-8"))))
