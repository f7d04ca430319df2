from __future__ import annotations

import ast
import sys

from tests.project.specification import ROOT

ALLOWED = ("godwit.core.", "godwit.brokers.contract", "godwit.brokers.memory.engine", "godwit.messagequeue.")


def test_the_in_process_broker_stands_on_the_core_and_the_memory_engine_alone() -> None:
    found = set()
    for path in (ROOT / "src" / "godwit" / "messagequeue").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                found.add(node.module or "")
            elif isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
    others = {name for name in found if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name.partition(".")[0] for name in others if not name.startswith(ALLOWED)} == {"msgspec"}
