"""Which modules something goes through: those with a function that takes it, or gives it, while it is watched."""

from __future__ import annotations

import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final, Self

import godwit
from tests.project.specification import ROOT

HOME: Final = f"{Path(godwit.__file__).parent}/"
_DEPTH: Final = 3
_PAGE: Final = ROOT / "docs" / "architecture.md"


class ModuleTrace:
    """Watches the functions of Godwit in this thread and those started meanwhile; `carries` knows what is followed."""

    def __init__(self, carries: Callable[[object], bool]) -> None:
        self._carries = carries
        self.modules: set[str] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._look)
        sys.setprofile(self._look)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _look(self, frame: FrameType, event: str, result: object) -> None:
        file = frame.f_code.co_filename
        if not file.startswith(HOME) or file[len(HOME) :] in self.modules:
            return
        values = [result] if event == "return" else [frame.f_locals.get(name) for name in _parameters(frame.f_code)]
        if event in {"call", "return"} and any(map(self._holds, values)):
            self.modules.add(file[len(HOME) :])

    def _holds(self, value: object, depth: int = 0) -> bool:
        if self._carries(value):
            return True
        if isinstance(value, Mapping):
            value = [*value, *value.values()]
        if depth == _DEPTH or not isinstance(value, list | tuple | set | frozenset):
            return False
        return any(self._holds(part, depth + 1) for part in value)


def _parameters(code: CodeType) -> tuple[str, ...]:
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return tuple(name for name in code.co_varnames[:count] if name != "self")


def names_one_of(value: object, keys: list[str]) -> bool:
    """Say whether a text or bytes hold one of these."""
    if isinstance(value, str):
        return any(key in value for key in keys)
    return isinstance(value, bytes | bytearray) and any(key.encode() in value for key in keys)


def drawn(title: str) -> set[str]:
    """Return the modules in the drawing under a heading of docs/architecture.md."""
    text = _PAGE.read_text(encoding="utf-8").partition(f"\n### {title}\n")[2]
    drawing: Any = re.search(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return set(re.findall(r"[\w/]+\.py\b", drawing[1]))
