"""A pytest plugin that says which copy of Godwit is under test."""

from __future__ import annotations

from pathlib import Path

import godwit


def pytest_terminal_summary(terminalreporter: object) -> None:
    write = terminalreporter.write_line  # type: ignore[attr-defined]
    write(f"godwit comes from {Path(godwit.__file__).parent}")
