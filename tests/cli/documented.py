"""The help of every command, as docs/cli.md shows it; `python -m tests.cli.documented` writes it there."""

from __future__ import annotations

import re
from typing import Any

from typer.main import get_command
from typer.testing import CliRunner

from godwit.cli.app import COMMANDS, app
from tests.project.specification import ROOT

PAGE = ROOT / "docs" / "cli.md"
_PART = re.compile(r"(<!-- help: start;[^\n]*-->\n).*(<!-- help: end -->)", re.DOTALL)


def help_of(*words: str) -> str:
    """Return what `godwit WORDS --help` prints in 80 columns."""
    result = CliRunner(env={"GODWIT_URL": None}).invoke(app, [*words, "--help"], prog_name="godwit")
    assert result.exit_code == 0
    return result.stdout.strip()


def commands() -> list[tuple[str, ...]]:
    """Return the words of every command, those that other commands have included."""
    found: list[tuple[str, ...]] = []
    top: Any = get_command(app)
    for name in COMMANDS:
        command = top.get_command(None, name)
        found += [(name,), *((name, inner) for inner in getattr(command, "commands", ()))]
    return found


def section() -> str:
    """Return the help of all commands as Markdown."""
    parts = []
    for words in ((), *commands()):
        line = " ".join(("godwit", *words, "--help"))
        parts.append(f"```text\n$ {line}\n{help_of(*words)}\n```\n")
    return "\n".join(parts)


def page_with(text: str) -> str:
    """Return the page with the section replaced."""
    return _PART.sub(lambda found: f"{found[1]}\n{text}\n{found[2]}", PAGE.read_text(encoding="utf-8"))


if __name__ == "__main__":
    PAGE.write_text(page_with(section()), encoding="utf-8")
