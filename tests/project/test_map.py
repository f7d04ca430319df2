"""The map of the code: a package has one row in docs/architecture.md and lists its modules; `godwit` itself has none.

A package lists its modules in the docstring of its `__init__.py`, indented by four spaces: the name, two spaces or
more, and what the module does. Its row on the map is without `.py`. Modules beside the packages have rows of their own.
"""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

from tests.project.specification import ROOT

SOURCE = ROOT / "src"
_ROW = re.compile(r"^\| `?(?P<place>godwit/[^ |`]+)`? *\| (?P<job>.+?) *\|$", re.MULTILINE)
_LISTED = re.compile(r"^    (?P<name>[a-z_]\w*) {2,}(?P<job>\S.*)$", re.MULTILINE)
_UNLISTED = ("__init__", "__main__")
VERBS = ["publish", "pull", "settle", "maintain", "declare", "dead_letters", "journal", "shared", "stats", "listen"]
MAP = dict(_ROW.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))


def _names(package: Path) -> set[str]:
    """Return the modules of a package."""
    return {path.stem for path in package.glob("*.py") if path.stem not in _UNLISTED}


def _listing(package: Path) -> dict[str, str]:
    """Return what a package's docstring says of its modules and packages, by name."""
    text = (package / "__init__.py").read_text(encoding="utf-8")
    return dict(_LISTED.findall(ast.get_docstring(ast.parse(text), clean=False) or ""))


PACKAGES = {
    path.parent.relative_to(SOURCE).as_posix(): path.parent for path in (SOURCE / "godwit").rglob("__init__.py")
}
LISTINGS = {place: listing for place, package in PACKAGES.items() if (listing := _listing(package))}


def test_every_module_is_on_the_map() -> None:
    modules = {
        f"{place}/{name}.py"
        for place, package in PACKAGES.items()
        for name in _names(package)
        if name not in LISTINGS.get(place, {})
    }
    assert modules - MAP.keys() == set(), (
        "list it in the docstring of its package: `    x    what it does`, or where the package has no list,"
        " add a line to docs/architecture.md: | godwit/x.py | what it does |"
    )


def test_every_place_on_the_map_exists() -> None:
    assert {place for place in MAP if not (SOURCE / place).exists()} == set()


def test_a_package_lists_all_its_modules() -> None:
    assert {place for place in PACKAGES if _names(PACKAGES[place])} - LISTINGS.keys() == {"godwit"}
    for place, listing in LISTINGS.items():
        packages = {path.parent.name for path in PACKAGES[place].glob("*/__init__.py")}
        assert _names(PACKAGES[place]) - listing.keys() == set(), f"{place}/__init__.py does not list these"
        assert listing.keys() - _names(PACKAGES[place]) - packages == set(), f"{place}/__init__.py lists what is gone"


def test_a_package_that_lists_its_modules_has_the_only_row_for_them() -> None:
    with_modules = {place for place in LISTINGS if _names(PACKAGES[place])}
    assert with_modules - MAP.keys() == set(), "add a line to docs/architecture.md: | godwit/x | what it is for |"
    twice = {f"{place}/{name}.py" for place, listing in LISTINGS.items() for name in listing}
    assert twice & MAP.keys() == set(), "these are listed in the docstring of their package"


def test_every_line_of_the_map_says_what_the_module_does() -> None:
    jobs = MAP | {f"{place}/{name}": job for place, listing in LISTINGS.items() for name, job in listing.items()}
    assert {place for place, job in jobs.items() if len(job.split()) < 3} == set()


def test_the_command_prints_every_module_once() -> None:
    printed = subprocess.run([ROOT / "dev", "map"], capture_output=True, check=True, text=True).stdout.splitlines()
    places = [line.split()[0] for line in printed]
    modules = {f"{place}/{name}.py" for place, package in PACKAGES.items() for name in _names(package)}
    assert sorted(place for place in places if place.endswith(".py")) == sorted(
        modules | (MAP.keys() - LISTINGS.keys())
    )


def test_every_broker_has_the_ten_verbs_where_the_table_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("\n### The ten verbs\n")[2].partition("\n- ")[0]
    names, _, *rows = (
        [cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line
    )
    assert [row[0] for row in rows] == VERBS
    for verb, *homes in rows:
        for broker, home in zip(names[1:], homes, strict=True):
            place = SOURCE / "godwit" / "brokers" / broker
            own = verb if (place / verb).exists() or (place / f"{verb}.py").exists() else None
            assert home == own or (own is None and (place / f"{home}.py").exists()), (broker, verb, home)
