from __future__ import annotations

import re

from tests.project.specification import ROOT

_LINE = re.compile(r"^\| `?(?P<module>godwit/[^ |`]+)`? *\| (?P<job>.+?) *\|$", re.MULTILINE)
MAP = dict(_LINE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))


def test_every_module_is_on_the_map() -> None:
    modules = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "godwit").rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    assert modules - MAP.keys() == set(), "add a line to docs/architecture.md: | godwit/x.py | what it does |"


def test_every_place_on_the_map_exists() -> None:
    assert {module for module in MAP if not (ROOT / "src" / module).exists()} == set()


def test_every_line_of_the_map_says_what_the_module_does() -> None:
    assert {module for module, job in MAP.items() if len(job.split()) < 3} == set()
