from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from godwit.cli.commands import config
from godwit.config.keys import SETTINGS
from godwit.core.errors import ConfigurationError
from tests.project.specification import ROOT

NOTHING: dict[str, str | None] = {variable.name: None for key in SETTINGS.values() for variable in key.variables}


def typed(*words: str, environment: dict[str, str] | None = None) -> Result:
    app = typer.Typer()
    config.register(app)
    return CliRunner(env={**NOTHING, **(environment or {})}).invoke(app, words)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_value_is_a_line_with_its_origin() -> None:
    lines = typed(environment={"VISIBILITY_TIMEOUT": "300000"}).stdout.splitlines()
    assert lines[0].split() == ["name", "value", "origin"]
    assert len(lines) == len(SETTINGS) + 1
    assert ["consumer.lease", "5m", "env", "VISIBILITY_TIMEOUT"] in [line.split() for line in lines]


def test_the_file_in_the_folder_is_read(folder: Path) -> None:
    (folder / "godwit.toml").write_text("[consumer]\nbatch_size = 7\n")
    (row,) = json.loads(typed("--json", "--changed").stdout)
    assert row == {"name": "consumer.batch_size", "value": "7", "origin": "godwit.toml:2"}


def test_another_file_and_a_url_can_be_named() -> None:
    file = ROOT / "examples" / "notifications.toml"
    rows = json.loads(typed("--json", "--file", str(file), "--url", "redis://me:hush@h").stdout)
    by_name = {row["name"]: row for row in rows}
    assert by_name["broker_url"]["origin"] == "argument"
    assert by_name["broker_url"]["value"] == "redis://me:***@h"
    assert by_name["queues[notifications:high].ttl"]["value"] == "1h"


def test_a_mistake_is_raised_for_the_command_line_to_tell() -> None:
    assert isinstance(typed(environment={"MAX_RETRIES": "many"}).exception, ConfigurationError)
