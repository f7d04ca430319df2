"""Shared values have their keys from `core/shared_keys`: nothing else writes a prefix, and its table lists them all."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

from godwit.core import shared_keys
from tests.project.specification import ROOT

REGISTRY: Final = Path(shared_keys.__file__)
PREFIXES: Final = {value for name, value in vars(shared_keys).items() if name.isupper()}
_KEY: Final = re.compile(rf"(?:{'|'.join(value.partition('/')[0] for value in PREFIXES)})/[\w/#-]*")


def _texts(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def test_only_the_registry_writes_a_prefix() -> None:
    modules = [path for path in (ROOT / "src").rglob("*.py") if path != REGISTRY]
    found = {(path.name, text) for path in modules for text in _texts(path) if _KEY.fullmatch(text)}
    assert found == set(), "make the key with a function of godwit/core/shared_keys.py"


def test_the_table_of_the_registry_lists_every_prefix() -> None:
    listed = set(re.findall(r"^\| ([a-z/]+)", shared_keys.__doc__ or "", re.MULTILINE)) - {"key"}
    assert listed == PREFIXES - {shared_keys.GATE}
