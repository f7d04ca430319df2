"""The pages for those who come from another library: both sides are there, and the other one at least compiles.

`./dev docs peers` runs it, in the environment that has the other libraries; this one has none of them.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.project.migration import PAGES, their_blocks
from tests.project.test_docs_run import blocks

TOPICS = ("worker", "options", "retries", "periodic", "routing", "ack", "errors", "events", "test", "monitoring")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_both_sides_and_what_has_no_counterpart(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    theirs = their_blocks(page)
    ours = [block for block in blocks(page) if block.reason is None]
    assert len(theirs) >= 3
    assert len(ours) >= len(theirs)
    for block in theirs:
        if block.kind == "python":
            ast.parse(block.code)
    missing = text.partition("## What has no counterpart yet")[2].lower()
    assert all(word in missing for word in ("called as functions", "results")) or "functions as jobs" in missing
    assert [topic for topic in (*TOPICS, "deployment", "scheduled_at") if topic not in text.lower()] == []
