"""What the tests of the command line hold: a fresh folder, and `godwit` typed into it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from godwit.cli.app import app


class Terminal:
    """Types commands against one SQLite file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder / 'godwit.db'}"

    def type(self, *words: str, input: str | bytes | None = None, code: int = 0, url: str | None = None) -> Result:
        """Run a command in this process and check its exit code."""
        runner = CliRunner(env={"GODWIT_URL": url or self.url})
        result = runner.invoke(app, words, input=input, prog_name="godwit")
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
        return result

    def json(self, *words: str, input: str | None = None, code: int = 0) -> list[Any]:
        """Run a command with --json; return the documents on stdout."""
        result = self.type(*words, "--json", input=input, code=code)
        return [json.loads(line) for line in result.stdout.splitlines()]

    def error(self, *words: str, code: int, input: str | None = None, url: str | None = None) -> dict[str, Any]:
        """Run a command with --json that fails; return the document on stderr, having found nothing on stdout."""
        result = self.type(*words, "--json", code=code, input=input, url=url)
        assert result.stdout == ""
        document: dict[str, Any] = json.loads(result.stderr)
        assert document["exit_code"] == code
        return document

    def start(self, *words: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command as people do, in a process of its own."""
        return subprocess.run(
            [sys.executable, "-m", "godwit", *words],
            input=input,
            cwd=self.folder,
            env={**os.environ, "GODWIT_URL": self.url},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
