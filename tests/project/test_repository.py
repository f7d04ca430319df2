from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest

import godwit
from tests.project.specification import ROOT
from tests.steal_time import between

HEAVY = ("asyncpg", "pamqp", "pandas", "pyarrow", "pyspark", "redis", "rich", "starlette", "typer", "uvicorn")


def project_files() -> list[Path]:
    """Return what people write; found by walking, because a bare system has no git."""
    made = {"__pycache__", "build", "dist", "spark-warehouse"}
    folders = [ROOT / ".ci"]
    folders += [
        path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name not in made
    ]
    inside = (path for folder in folders for path in folder.rglob("*") if made.isdisjoint(path.parts))
    files = (path for path in (*ROOT.iterdir(), *inside) if path.is_file())
    # In a second working tree `.git` is a file.
    return [path for path in files if path.suffix not in {".db", ".lock"} and path.name != ".git"]


def markdown_files() -> list[Path]:
    return [path for path in project_files() if path.suffix == ".md"]


def python_says(code: str) -> str:
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True)
    return answer.stdout.strip()


@pytest.mark.parametrize("name", ["requirements.lock", "pyproject.toml"])
def test_no_address_of_a_server_is_in_the_packaging_but_the_projects_own(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.findall(r".*(?:https?:|file:|://).*", text)
    own = tomllib.loads(text)["project"]["urls"] if name == "pyproject.toml" else {}
    assert found == [f'{label} = "{address}"' for label, address in own.items()]
    assert all(address.startswith(own["Homepage"]) for address in own.values())


def test_every_locked_package_carries_a_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    packages = re.split(r"^(?=[a-zA-Z0-9])", lock, flags=re.MULTILINE)[1:]
    assert len(packages) > 20
    assert [package.split()[0] for package in packages if "--hash=sha256:" not in package] == []


def test_no_file_names_a_place_on_one_machine() -> None:
    machine = re.compile(rb"(?<![\w.])/(?:home|root|work|Users|opt)/\w")
    found = {
        path.relative_to(ROOT).as_posix(): match.group().decode()
        for path in project_files()
        if path != Path(__file__) and (match := machine.search(path.read_bytes()))
    }
    assert found == {}


@pytest.mark.parametrize("name", ["dev", ".ci/run"])
def test_the_commands_are_executable(name: str) -> None:
    assert os.access(ROOT / name, os.X_OK)


def test_importing_godwit_imports_no_heavy_package() -> None:
    loaded = python_says("import sys, godwit; print(*{name.partition('.')[0] for name in sys.modules})").split()
    assert set(loaded) & set(HEAVY) == set()


@pytest.mark.serial
def test_importing_godwit_takes_under_150_ms() -> None:
    code = "import time; began = time.perf_counter(); import godwit; print((time.perf_counter() - began) * 1000)"
    python_says(code)  # writes the byte code
    took = []
    for _ in range(7):
        began = time.monotonic()
        took.append(float(python_says(code)) - between(began, time.monotonic()) * 1000)
    assert statistics.median(took) < 150


def test_every_public_name_is_in_the_reference() -> None:
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    public: list[str] = getattr(godwit, "__all__", [])
    assert [name for name in public if f"`{name}" not in reference] == []


def test_every_local_link_of_a_document_resolves() -> None:
    broken = {
        (document.relative_to(ROOT).as_posix(), target)
        for document in markdown_files()
        for target in re.findall(r"\]\(([^)\s#]+)[^)]*\)", document.read_text(encoding="utf-8"))
        if "://" not in target and not target.startswith("mailto:") and not (document.parent / target).exists()
    }
    assert broken == set()


def test_the_readme_shows_the_two_commands_early() -> None:
    start = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()[:40]
    assert "./dev run" in "\n".join(start)
    assert "./dev test" in "\n".join(start)
    example = "\n".join(start).partition("```python\n")[2].partition("```")[0]
    assert 5 < len([line for line in example.splitlines() if line]) <= 15
