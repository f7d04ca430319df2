"""Planted bugs: a copy of the project with one change, and the tests that have to notice it."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
COPIED: Final = ("src", "tests", "benchmarks")
WITNESS: Final = "godwit comes from "
TESTS_FAILED: Final = 1
"""The exit code of pytest for failed tests; others mean that it did not get to run them."""


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One bug: in `file` the text `old`, which must be there exactly once, becomes `new`; `tests` have to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    patience_seconds: int = 20
    """A bug may also show in a test that does not come to its end."""

    @contextmanager
    def planted(self, root: Path) -> Iterator[None]:
        """Have the bug in the copy of the project at `root`, and take it out again."""
        path = root / "src" / "godwit" / self.file
        text = path.read_text()
        found = text.count(self.old)
        assert found == 1, (
            f"{self.file} has the text to change {found} times; let the mutant follow the code:\n{self.old}"
        )
        changed = text.replace(self.old, self.new)
        if path.suffix == ".py":
            compile(changed, str(path), "exec")  # a bug, not a typo
        try:
            rewrite(path, changed)
            yield
        finally:
            rewrite(path, text)


def rewrite(path: Path, text: str) -> None:
    """Write a file anew; what is compiled of it goes: Python tells a change by size and second only."""
    path.write_text(text)
    for compiled in path.parent.glob(f"__pycache__/{path.stem}.*"):
        compiled.unlink()


def conformance(backend: str, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the ids of conformance tests (`module.py::test` or `module.py::test[case]`) over one backend."""
    tests = (name.removesuffix("]").partition("[") for name in names)
    return tuple(f"tests/conformance/test_{test}[{'-'.join(filter(None, (backend, case)))}]" for test, _, case in tests)


def copy_project(target: Path) -> Path:
    """Copy what tests need, compiled files with the rest; return the copy's root."""
    for folder in COPIED:
        shutil.copytree(ROOT / folder, target / folder, ignore=shutil.ignore_patterns("mutants", "*.pyc.*"))
    shutil.copy(ROOT / "pyproject.toml", target)
    (target / "tests" / "witness.py").write_text(Path(__file__).with_name("witness.py").read_text())
    return target


@cache
def _warm() -> subprocess.Popen[str]:
    command = [sys.executable, "-P", str(Path(__file__).with_name("warm.py"))]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    atexit.register(process.communicate)
    return process


def run_tests(root: Path, tests: tuple[str, ...], *, patience_seconds: int = 300) -> tuple[int, str]:
    """Run tests of the copy at `root` in a process of their own; return pytest's exit code and what it said."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "GODWIT_"))}
    environment |= {"PYTHONPATH": str(root / "src"), "GODWIT_TEST_PATIENCE": "10"}
    plugins = ("no:cacheprovider", "no:xdist", "tests.witness")
    arguments = ["-x", "-q", *(word for plugin in plugins for word in ("-p", plugin))]
    arguments += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # plugins are loaded already
    arguments += [f"--basetemp={root / 'tmp'}", f"--timeout={patience_seconds}", *tests]
    output = root / "output"
    pipes = _warm()
    assert pipes.stdin is not None
    assert pipes.stdout is not None
    pipes.stdin.write(json.dumps([str(root), environment, arguments, str(output)]) + "\n")
    code = int(pipes.stdout.readline())
    said = output.read_text()
    assert f"{WITNESS}{root / 'src' / 'godwit'}" in said, f"the copy was not the one tested:\n{said}"
    return code, said


def expect_red(mutant: Mutant, root: Path) -> None:
    """Plant a bug in the copy at `root` and fail unless the tests named with it do."""
    with mutant.planted(root):
        code, said = run_tests(root, mutant.tests, patience_seconds=mutant.patience_seconds)
    assert code == TESTS_FAILED, f"nobody noticed {mutant.name!r} (pytest ended with {code}):\n{said}"
