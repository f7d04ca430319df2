"""docs/changing.md: every change on the page can be made as it stands there, in as few files as it says, and works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from tests.project.specification import ROOT

PAGE: Final = (ROOT / "docs" / "changing.md").read_text(encoding="utf-8")
MOST_FILES: Final = {"a journal field": 5}
FEW_FILES: Final = 3
_SECTION: Final = re.compile(r"^## (?P<title>.+)\n(?P<text>(?:(?!## ).*\n)*)", re.MULTILINE)
_BLOCK: Final = re.compile(r"^```(?P<kind>diff|python)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_COUNT: Final = re.compile(r"^\| \[(?P<title>.+?)\]\(#(?P<anchor>[\w-]+)\) \| (?P<files>\d+) \|$", re.MULTILINE)


class Edit(NamedTuple):
    """A place in a file, as it is and as it becomes; `old` is empty in a new file."""

    file: str
    old: str
    new: str


class Change(NamedTuple):
    edits: list[Edit]
    proof: str

    @property
    def files(self) -> set[str]:
        return {edit.file for edit in self.edits}


def edits_of(diff: str) -> list[Edit]:
    """Return what a diff of the page changes; `---` names a file, `+++` a new one, `@@` begins another place in it."""
    found, file = [], ""
    for part in re.split(r"^(?=--- |\+\+\+ |@@)", diff, flags=re.MULTILINE):
        head, _, body = part.partition("\n")
        file = head[4:] or file
        lines = body.splitlines(keepends=True)
        if lines:
            old, new = ("".join(line[1:] for line in lines if line[0] not in left_out) for left_out in ("+", "-"))
            found.append(Edit(file, old, new))
    return found


def change_of(text: str) -> Change:
    blocks = {block["kind"]: block["text"] for block in _BLOCK.finditer(text)}
    return Change(edits_of(blocks["diff"]), blocks["python"])


CHANGES: Final = {section["title"].lower(): change_of(section["text"]) for section in _SECTION.finditer(PAGE)}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a copy of the source, compiled files included."""
    return shutil.copytree(ROOT / "src", tmp_path_factory.mktemp("changed") / "src")


def apply(edits: list[Edit], source: Path) -> dict[Path, str | None]:
    """Make the edits in a copy of the source; return what the files held before."""
    before: dict[Path, str | None] = {}
    for edit in edits:
        path = source.parent / edit.file
        text = path.read_text(encoding="utf-8") if path.exists() else None
        before.setdefault(path, text)
        assert (text or "").count(edit.old) == 1 or (text is None and not edit.old), (
            f"{edit.file} has {(text or '').count(edit.old)} times what docs/changing.md changes there; let the page"
            f" follow the code:\n{edit.old}"
        )
        path.write_text(edit.new if text is None else text.replace(edit.old, edit.new), encoding="utf-8")
    return before


def prove(change: Change, source: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a change's code over the source with the change, and take the change back."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GODWIT_")}
    environment |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
    before = apply(change.edits, source)
    for path in before:
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
            compiled.unlink()
    try:
        return subprocess.run(
            [sys.executable, "-"],
            input=change.proof,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
    finally:
        for path, text in before.items():
            path.unlink() if text is None else path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("title", CHANGES)
def test_a_change_of_the_page_works(title: str, source: Path, tmp_path: Path) -> None:
    ran = prove(CHANGES[title], source, tmp_path)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("title", CHANGES)
def test_the_code_under_a_change_needs_the_change(title: str, source: Path, tmp_path: Path) -> None:
    assert prove(CHANGES[title]._replace(edits=[]), source, tmp_path).returncode != 0


def test_a_change_touches_few_files() -> None:
    assert {title: len(change.files) for title, change in CHANGES.items()} == {
        row["title"].lower(): int(row["files"]) for row in _COUNT.finditer(PAGE)
    }
    assert all(len(change.files) <= MOST_FILES.get(title, FEW_FILES) for title, change in CHANGES.items())
