"""The packages that a registry would get: built without a network, accepted by twine, complete."""

from __future__ import annotations

import email
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from tests.project.specification import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("packages")
    for kind in ("sdist", "wheel"):
        command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return {"sdist": next(folder.glob("*.tar.gz")), "wheel": next(folder.glob("*.whl"))}


def test_a_registry_would_take_both(built: dict[str, Path]) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "twine", "check", "--strict", *map(str, built.values())]
    checked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert checked.returncode == 0, checked.stdout
    assert checked.stdout.count("PASSED") == 2


def test_the_description_links_to_the_source_and_every_target_is_there(built: dict[str, Path]) -> None:
    with zipfile.ZipFile(built["wheel"]) as wheel:
        (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        metadata = email.message_from_bytes(wheel.read(name))
    urls = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["urls"]
    assert metadata.get_all("Project-URL") == [f"{label}, {address}" for label, address in urls.items()]
    text = str(metadata.get_payload())
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert len(targets) > 20
    assert [target for target in targets if not target.startswith(f"{urls['Source']}/")] == []
    places = [ROOT / target.removeprefix(f"{urls['Source']}/") for target in targets]
    assert [place for place in places if not place.exists()] == []


def test_the_source_archive_builds_what_the_repository_builds(built: dict[str, Path], tmp_path: Path) -> None:
    with tarfile.open(built["sdist"]) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = tmp_path.iterdir()
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=120)
    again = next(tmp_path.glob("*.whl"))
    with zipfile.ZipFile(again) as one, zipfile.ZipFile(built["wheel"]) as other:
        assert one.namelist() == other.namelist()
        assert {name: one.read(name) for name in one.namelist()} == {
            name: other.read(name) for name in other.namelist()
        }


def test_no_extra_is_offered_without_code_behind_it() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    for extra, packages in extras.items():
        modules = [re.split(r"[\[<>=;]", package)[0].strip().replace("-", "_") for package in packages]
        modules = [
            {"opentelemetry_api": "opentelemetry", "jsonschema_rs": "jsonschema_rs"}.get(one, one) for one in modules
        ]
        used = [module for module in modules if re.search(rf"(?:import|from|\")\s*{module}\b", code)]
        assert used, f"nothing imports what godwit[{extra}] installs"
