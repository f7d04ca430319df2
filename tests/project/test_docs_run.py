"""Every example in the documents runs: all `python` and `sh` blocks, unless the line above says why one does not.

The blocks of a document run in order in one new folder, which holds `examples` and nothing else, so that a page can be
read as a session. A block is left out by
`<!-- not run: the reason -->` right above it. A page that says `<!-- needs: redis -->` gets a server of its own, whose
address is in the variable named in `SERVERS`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.project.specification import ROOT
from tests.servers.postgres import empty_database
from tests.servers.rabbitmq import the_node
from tests.servers.redis import redis_server

_BLOCK = re.compile(
    r"^(?P<mark><!-- not run: (?P<reason>.*?) -->\n+)?```(?P<kind>\w+)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_NEEDS = re.compile(r"^<!-- needs: (\w+) -->$", re.MULTILINE)
SERVERS: dict[str, tuple[str, Callable[[], AbstractContextManager[Any]]]] = {
    "postgres": ("DATABASE_URL", empty_database),
    "rabbitmq": ("RABBITMQ_URL", lambda: nullcontext(the_node())),
    "redis": ("REDIS_URL", redis_server),
}
RUN = {"python": [sys.executable, "-W", "error", "-"], "sh": ["sh", "-eu"]}


class Block(NamedTuple):
    line: int
    kind: str
    code: str
    reason: str | None


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, found.start("code")), found["kind"], found["code"], found["reason"])
        for found in _BLOCK.finditer(text)
        if found["kind"] in RUN
    ]


DOCUMENTS = [
    document
    for document in sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
    if any(block.reason is None for block in blocks(document))
]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.relative_to(ROOT).as_posix())
def test_every_example_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GODWIT_")}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    if (ROOT / "examples").exists():
        (tmp_path / "examples").symlink_to(ROOT / "examples")
    with ExitStack() as servers:
        for name in _NEEDS.findall(document.read_text(encoding="utf-8")):
            variable, start = SERVERS[name]
            environment[variable] = servers.enter_context(start()).url
        run_blocks(document, tmp_path, environment)


def run_blocks(document: Path, tmp_path: Path, environment: dict[str, str]) -> None:
    for block in blocks(document):
        if block.reason is None:
            ran = subprocess.run(
                RUN[block.kind],
                input=block.code,
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=200,
                check=False,
            )
            assert ran.returncode == 0, f"{document.name}, line {block.line}:\n{ran.stdout}{ran.stderr}"


def test_the_readme_example_is_run() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = readme.partition("<!-- example: start -->")[2].partition("<!-- example: end -->")[0]
    assert [block.kind for block in blocks(ROOT / "README.md") if block.code in example and block.reason is None] == [
        "python"
    ]


def test_a_block_left_out_says_why() -> None:
    reasons = [
        block.reason
        for document in ROOT.rglob("docs/**/*.md")
        for block in blocks(document)
        if block.reason is not None
    ]
    assert all(len(reason.split()) > 2 for reason in reasons)
