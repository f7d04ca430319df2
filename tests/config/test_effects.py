"""Every environment variable of the specifications, set, and its effect on the running system seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.effects.running import World
from tests.config.effects.table import EFFECTS, Elsewhere
from tests.config.test_variables import VARIABLES
from tests.project.specification import ROOT, names_of_tests


@pytest.mark.parametrize("name", [name for name, effect in EFFECTS.items() if not isinstance(effect, Elsewhere)])
async def test_setting_it_changes_what_the_running_system_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = EFFECTS[name]
    assert not isinstance(effect, Elsewhere)
    await effect(World(tmp_path, monkeypatch))


def test_every_variable_has_an_entry_and_no_other() -> None:
    assert EFFECTS.keys() == VARIABLES.keys()


def test_a_test_that_shows_an_effect_elsewhere_exists() -> None:
    for effect in EFFECTS.values():
        if isinstance(effect, Elsewhere) and effect.test is not None:
            path, _, name = effect.test.partition("::")
            assert name in names_of_tests(ROOT / path)
