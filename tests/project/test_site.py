from __future__ import annotations

from pathlib import Path

import pytest

import godwit
from tests.project.site import build, faults


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
