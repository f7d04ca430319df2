"""Documents name who does something: no sentence hides its subject behind "somebody", "whoever" or "is told"."""

from __future__ import annotations

import re

from tests.project.specification import DOCUMENT, ROOT

_HIDDEN = re.compile(
    r"\b(?:somebody|someone|anybody|nobody|everybody|whoever|(?:is|are|was|were) told|heard of)\b", re.IGNORECASE
)
_LEFT_ALONE = (DOCUMENT, ROOT / "docs" / "broker-semantics.md", ROOT / "docs" / "architecture.md")
"""Quoted requirements, the reference of the brokers, and the words of the eleven promises."""


def test_documents_name_their_subjects() -> None:
    documents = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if path not in _LEFT_ALONE]
    assert len(documents) > 50
    found = {
        f"{path.relative_to(ROOT).as_posix()}:{number}": match[0]
        for path in documents
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if (match := _HIDDEN.search(line))
    }
    assert found == {}, "say who it is: a worker, the broker, another process"
