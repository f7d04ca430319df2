"""Every environment variable of the specifications, set, and its effect on the running system seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.config.effects.running_systems import World
from tests.config.effects.table import EFFECTS
from tests.config.test_variables import VARIABLES


@pytest.mark.parametrize("name", EFFECTS)
async def test_setting_it_changes_what_the_running_system_does(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await EFFECTS[name](World(tmp_path, monkeypatch))


def test_every_variable_has_an_entry_and_no_other() -> None:
    assert EFFECTS.keys() == VARIABLES.keys()
