"""Runs the other libraries' side of docs/migration with the packages of .venv-peers, on Redis: `./dev docs peers`."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.project.specification import ROOT
from tests.project.test_docs_run import Block, blocks
from tests.servers.redis import redis_server

PAGES: Final = tuple(sorted((ROOT / "docs" / "migration").glob("*.md")))
THEIRS: Final = "./dev docs peers runs the side of "


def their_blocks(page: Path) -> list[Block]:
    """Return the blocks of a page that need the other library."""
    return [block for block in blocks(page) if (block.reason or "").startswith(THEIRS)]


def main(python: Path) -> int:
    """Run every page in a folder of its own; return how many blocks failed."""
    failed = 0
    with redis_server() as server:
        for page in PAGES:
            with tempfile.TemporaryDirectory() as folder:
                for block in their_blocks(page):
                    failed += not _runs(page, block, Path(folder), python, server.url)
    return failed


def _runs(page: Path, block: Block, folder: Path, python: Path, url: str) -> bool:
    environment = {**os.environ, "REDIS_URL": url, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    ran = subprocess.run(
        [str(python), "-"] if block.kind == "python" else ["sh", "-eu"],
        input=block.code,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    handled = block.kind != "sh" or "charged 7" in ran.stdout + ran.stderr
    good = ran.returncode == 0 and handled
    print(f"{page.name}, line {block.line}: {'runs' if good else ran.stdout + ran.stderr}")
    return good


if __name__ == "__main__":
    sys.exit(main(Path.cwd() / sys.argv[1]))
