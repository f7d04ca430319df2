from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

import godwit
from tests.project.site import build, faults
from tests.project.specification import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder / "html", doctrees=folder / "doctrees")
    return folder / "html"


def test_the_site_builds_without_a_warning_and_every_link_of_it_ends_somewhere(site: Path) -> None:
    assert faults(site) == []
    assert len(list(site.rglob("*.html"))) > 60


def test_the_reference_has_a_signature_for_every_public_name(site: Path) -> None:
    page = (site / "api.html").read_text(encoding="utf-8")
    names = [name for name in godwit.__all__ if not name.startswith("__")]
    assert [name for name in names if f'id="godwit.{name}"' not in page] == []


def test_manifests_and_compose_files_of_the_documents_can_be_read() -> None:
    found = [
        yaml.safe_load(block)
        for page in sorted((ROOT / "docs").rglob("*.md"))
        for block in re.findall(r"^```yaml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    ]
    kinds = [each.get("kind", "services" if "services" in each else None) for each in found]
    assert {"Deployment", "services"} <= set(kinds)
    (pod,) = [each["spec"]["template"]["spec"] for each in found if each.get("kind") == "Deployment"]
    assert pod["enableServiceLinks"] is False, "a Service named redis would set REDIS_PORT"
    (container,) = pod["containers"]
    assert {container[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == {
        "/health/live",
        "/health/ready",
    }


def test_the_check_finds_what_is_broken_and_what_comes_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text(
        '<a href="gone.html">a</a><a href="#nowhere">b</a><a id="here" href="#here">c</a>'
        '<a href="https://elsewhere.example/">d</a><img src="//cdn.example/logo.png">'
        "<style>@import 'https://fonts.example/font.css'</style>"
    )
    assert faults(tmp_path) == [
        "index.html: loads //cdn.example/logo.png",
        "index.html: no target of gone.html",
        "index.html: no target of #nowhere",
        "index.html: loads https://fonts.example/font.css",
    ]
