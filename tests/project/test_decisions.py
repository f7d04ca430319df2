"""Decisions: one page each, found by number, title and area, and followed by everything that refers to them."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.project.specification import ROOT

FOLDER = ROOT / "docs" / "decisions"
PAGES = sorted(path for path in FOLDER.glob("*.md") if path.name != "README.md")
MOST_LINES = 80
_HEADINGS = (["Context", "Decision", "Consequences"], ["Context", "Decision", "Numbers", "Consequences"])
_TITLE = re.compile(r"^# (?P<number>\d{4}) (?P<title>[^:]+: .+)$")
_FOLLOWED = re.compile(r"(?:Superseded|Changed in part) by \[(?P<number>\d{4})\]\((?P=number)-[\w-]+\.md\)")
_INDEXED = re.compile(r"^- \[(?P<title>\d{4} .+)\]\((?P<name>[\w.-]+)\)$", re.MULTILINE)
_NAMED = re.compile(r"\bdecisions? (\d+)\b|\bdecisions/(\d{4}[\w-]*\.md)", re.IGNORECASE)
_FILE = re.compile(r"`([\w./-]+\.(?:py|lua|sql))(?:::\w+)?`")


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _referring() -> dict[str, str]:
    """Return the texts of the project that may refer to decisions, by their path."""
    inside = (
        path for folder in ("docs", "src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*")
    )
    found = (path for path in (*inside, *ROOT.glob("*.md")) if path.suffix in {".py", ".md", ".sql", ".lua", ".json"})
    return {path.relative_to(ROOT).as_posix(): _text(path) for path in found if path != Path(__file__)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_decision_is_one_page_of_context_decision_numbers_and_consequences(page: Path) -> None:
    text = _text(page)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) in _HEADINGS
    assert len(text.splitlines()) <= MOST_LINES
    numbers = re.search(r"^## Numbers$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    assert numbers is None or "\n|--" in numbers[1].replace(" ", ""), "the numbers are a table"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_name_of_a_decisions_file_is_its_number_area_and_title(page: Path) -> None:
    title = _text(page).splitlines()[0]
    assert _TITLE.match(title), "# NNNN Area: what was decided"
    assert page.stem == re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def test_a_number_is_given_once() -> None:
    assert [number for number, count in Counter(page.name[:4] for page in PAGES).items() if count > 1] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_superseded_decision_names_a_later_one_in_its_first_line(page: Path) -> None:
    first = _text(page).splitlines()[2]
    if re.match("superseded|changed", first, re.IGNORECASE):
        followed = _FOLLOWED.match(first)
        assert followed, "Superseded by [NNNN](NNNN-title.md), or: Changed in part by ..."
        assert followed["number"] > page.name[:4]
    else:
        assert "superseded by" not in _text(page).lower()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_decision_names_exist(page: Path) -> None:
    folders = [ROOT / name for name in ("src", "tests", "benchmarks")]
    there = [path.relative_to(ROOT).as_posix() for folder in folders for path in folder.rglob("*.*")]
    gone = {name for name in _FILE.findall(_text(page)) if not any(f"/{path}".endswith(f"/{name}") for path in there)}
    assert gone == set()


def test_every_reference_is_to_a_decision_that_exists() -> None:
    numbers, names = {page.name[:4] for page in PAGES}, {page.name for page in PAGES}
    broken = {
        (place, number or name)
        for place, text in _referring().items()
        for number, name in _NAMED.findall(text)
        if (number and number not in numbers) or (name and name not in names)
    }
    assert broken == set()


def test_the_index_has_every_decision_once_with_its_title() -> None:
    indexed = [(match["name"], match["title"]) for match in _INDEXED.finditer(_text(FOLDER / "README.md"))]
    assert sorted(indexed) == [(page.name, _text(page).splitlines()[0].removeprefix("# ")) for page in PAGES]
