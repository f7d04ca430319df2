"""The suite notices bugs: each of these is planted in a copy of the project, and the tests named with it turn red."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from tests.mutants.plant import Mutant, copy_project, expect_red, run_tests

FOLDER = Path(__file__).parent
MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for path in sorted(FOLDER.glob("[!_]*.py"))
    if "\nMUTANTS: Final" in path.read_text()
    for mutant in import_module(f"tests.mutants.{path.stem}").MUTANTS
)
"""The planted bugs of every module beside this one that has some."""


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project; each bug is taken out of it before the next is planted."""
    return copy_project(tmp_path_factory.mktemp("project"))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "_"))
def test_a_planted_bug_is_noticed(mutant: Mutant, project: Path) -> None:
    expect_red(mutant, project)


def test_there_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 60


def test_without_a_bug_the_same_machinery_is_green(project: Path) -> None:
    tests = {test for mutant in MUTANTS for test in mutant.tests}
    code, said = run_tests(project, tuple(sorted(tests)))
    assert code == 0, said


def test_a_bug_whose_place_is_gone_is_reported(project: Path) -> None:
    lost = Mutant(name="lost", file="brokers/contract.py", old="no such text anywhere", new="", tests=())
    with pytest.raises(AssertionError, match="0 times"), lost.planted(project):
        pass
