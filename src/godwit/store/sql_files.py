"""SQL in files: statements by name, migrations by number."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Final

from godwit.store.contract import Migration

_ROOT: Final = Path(__file__).parents[2]
"""Where the packages lie. importlib.resources would load half a megabyte of modules into every worker."""
_FILE: Final = re.compile(r"(?P<number>\d{4})-(?P<name>[a-z0-9-]+)\.sql")


@lru_cache(maxsize=512)
def statement(package: str, name: str) -> str:
    """Return `sql/<name>.sql` of a backend's package, such as `messages/status`."""
    return _folder(package).joinpath("sql", *f"{name}.sql".split("/")).read_text("utf-8")


@lru_cache(maxsize=8)
def migrations(package: str) -> dict[Migration, str]:
    """Return the migrations of a backend's package in order, with their scripts."""
    found = {}
    for file in (_folder(package) / "migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            found[Migration(int(match["number"]), match["name"])] = file.read_text("utf-8")
    return dict(sorted(found.items()))


def _folder(package: str) -> Path:
    return _ROOT.joinpath(*package.split("."))
