"""Builds the site of the documents and checks it: `./dev docs`.

Every link ends somewhere, and nothing that a page shows or runs comes from another host.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from tests.project.specification import ROOT

SITE: Final = ROOT / "build" / "site"
_MOST_BUILD_SECONDS: Final = 240
_LINKS: Final = {"a": "href"}
_ASSETS: Final = {"img": "src", "script": "src", "link": "href", "source": "src", "iframe": "src", "form": "action"}
_STYLE_ADDRESS: Final = re.compile(r"(?:url\(|@import)\s*['\"]?((?:https?:)?//[^'\")\s]+)")


class SiteRefused(Exception):
    """The builder's or the checks' complaints, one a line."""


def build(target: Path, *, doctrees: Path) -> None:
    """Write the site to a folder; a warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-n", "-d", str(doctrees)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": "0", "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8"}
    ran = subprocess.run(
        [*command, str(ROOT / "docs"), str(target)],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=_MOST_BUILD_SECONDS,
        check=False,
    )
    if ran.returncode != 0:
        raise SiteRefused(ran.stderr or ran.stdout)


class _Page(HTMLParser):
    """The anchors of one page, what it links to, and what it loads."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.assets: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value for name, value in attrs if value is not None}
        self.anchors |= {named[name] for name in ("id", "name") if name in named}
        if _LINKS.get(tag) in named:
            self.links.append(named[_LINKS[tag]])
        if _ASSETS.get(tag) in named and named.get("rel") not in {"canonical", "author"}:
            self.assets.append(named[_ASSETS[tag]])


def faults(site: Path) -> list[str]:
    """Return what is wrong with a site: links and assets without a target, assets of other hosts."""
    pages = {path: _Page() for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        page.feed(path.read_text(encoding="utf-8"))
    found = []
    for path, page in pages.items():
        shown = path.relative_to(site).as_posix()
        found += [f"{shown}: loads {asset}" for asset in page.assets if urlsplit(asset).netloc]
        for link in [*page.links, *page.assets]:
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(address.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                found.append(f"{shown}: no target of {link}")
    for style in sorted([*site.rglob("*.css"), *site.rglob("*.html")]):
        text = style.read_text(encoding="utf-8")
        found += [f"{style.relative_to(site)}: loads {url}" for url in _STYLE_ADDRESS.findall(text)]
    return found


def main() -> int:
    """Build `build/site` and check it."""
    try:
        build(SITE, doctrees=SITE.with_name("site-doctrees"))
    except SiteRefused as refused:
        print(refused, file=sys.stderr)
        return 1
    wrong = faults(SITE)
    print(*wrong, sep="\n", end="\n" if wrong else "", file=sys.stderr)
    print(f"{SITE.relative_to(ROOT)}/index.html")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
