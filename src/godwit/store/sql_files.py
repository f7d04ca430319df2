"""SQL in files: statements by name, migrations by number."""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

from godwit.store.contract import Migration

_FILE: Final = re.compile(r"(?P<number>\d{4})-(?P<name>[a-z0-9-]+)\.sql")


@lru_cache(maxsize=512)
def statement(package: str, name: str) -> str:
    """Return `sql/<name>.sql` of a backend's package, such as `messages/status`."""
    return files(package).joinpath("sql", *f"{name}.sql".split("/")).read_text("utf-8")


@lru_cache(maxsize=8)
def migrations(package: str) -> dict[Migration, str]:
    """Return the migrations of a backend's package in order, with their scripts."""
    found = {}
    for file in files(package).joinpath("migrations").iterdir():
        if match := _FILE.fullmatch(file.name):
            found[Migration(int(match["number"]), match["name"])] = file.read_text("utf-8")
    return dict(sorted(found.items()))
