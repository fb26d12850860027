"""The documentation site builds without a warning, and a page of it asks no network for anything."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FETCHED = {
    "link": "href",
    "script": "src",
    "img": "src",
    "source": "src",
    "iframe": "src",
    "object": "data",
    "use": "href",
}
ELSEWHERE = re.compile(r"(?:[a-z]+:)?//")


class Resources(HTMLParser):
    """What a browser fetches for a page: all but the links that a reader may follow."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [given[FETCHED[tag]] or ""] if FETCHED.get(tag) in given else []
        self.found += re.findall(r"url\(['\"]?([^)'\"]+)", given.get("style") or "")


def resources(text: str) -> list[str]:
    """The addresses that a page of HTML makes a browser fetch."""
    parser = Resources()
    parser.feed(text)
    return parser.found + styled(text)


def styled(css: str) -> list[str]:
    """The addresses that a style sheet fetches."""
    return re.findall(r"""(?:url\(|@import)\s*['"]?([^)'"\s;]+)""", css)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site, as `make docs` builds it."""
    if importlib.util.find_spec("sphinx") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("Sphinx is missing: install the extra [docs]", pytrace=False)
        pytest.skip("needs the extra [docs]")
    return build(tmp_path_factory.mktemp("site"))


def build(folder: Path, *more: str) -> Path:
    """Run Sphinx as `make docs` does; AssertionError with its words where it warns."""
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet", "--builder", "html"]
    command += ["--conf-dir", "docs", *more, ".", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there(site: Path) -> None:
    """Each Markdown page below docs/ is a page of the site, and the root leads to the front page."""
    for page in (ROOT / "docs").rglob("*.md"):
        assert (site / page.relative_to(ROOT).with_suffix(".html")).exists(), page
    assert "url=docs/index.html" in (site / "index.html").read_text()


@pytest.mark.slow
def test_no_page_asks_a_network(site: Path) -> None:
    """Scripts, styles, pictures and fonts are all files of the site itself."""
    pages, styles = list(site.rglob("*.html")), list(site.rglob("*.css"))
    assert len(pages) > 20
    assert any(resources(page.read_text()) for page in pages)
    for page in pages:
        for address in resources(page.read_text()):
            if address.startswith(("data:", "#")):
                continue
            assert not ELSEWHERE.match(address), f"{page.relative_to(site)} fetches {address}"
            assert (page.parent / re.sub(r"[?#].*", "", address)).exists(), f"{page.relative_to(site)}: no {address}"
    for style in styles:
        for address in styled(style.read_text()):
            assert not ELSEWHERE.match(address), f"{style.relative_to(site)} fetches {address}"


def test_what_a_browser_would_fetch_is_found() -> None:
    """Scripts, styles, pictures and style attributes count, and links for readers do not."""
    page = """<link rel="icon" href="//cdn/x.png"><script src='https://a/b.js'></script><a href="https://reader"></a>
    <p style="background: url('http://c/d.png')"><style>@import "https://e/f.css"; b { src: url(g.woff2) }</style>"""
    assert set(resources(page)) == {"//cdn/x.png", "https://a/b.js", "http://c/d.png", "https://e/f.css", "g.woff2"}
