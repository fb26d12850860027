"""Pages tell the truth: their snippets run, their links lead somewhere, and the reference is what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.support.snippets import Reader, blocks, pages, unmarked

ROOT = Path(__file__).resolve().parents[1]
PAGES = list(pages(ROOT))
WITH_SNIPPETS = [page for page in PAGES if blocks(page.read_text())]
ELSEWHERE = {ROOT / "docs" / "howto" / "export.md"}  # tests/cli/test_export.py follows it and looks at what is printed
REFERENCE = runpy.run_path(str(ROOT / "scripts" / "make_reference.py"))["PAGES"]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def _long(page: Path) -> bool:
    """Whether a page trains, exports or tunes: what takes minutes on a busy machine."""
    return page.parent.name == "tutorial" or page.name.startswith("from-")


@pytest.mark.e2e
@pytest.mark.needs("bash", "curl")
@pytest.mark.timeout(300)  # a tutorial trains and measures; on a busy machine that is minutes
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=_name(page), marks=pytest.mark.slow if _long(page) else ())
        for page in WITH_SNIPPETS
        if page not in ELSEWHERE
    ],
)
def test_snippets_run_as_they_stand(page: Path, tmp_path: Path) -> None:
    """A reader who types a page's marked blocks from top to bottom in an empty folder gets what the page promises."""
    with Reader(tmp_path) as reader:
        for block in blocks(page.read_text()):
            reader.follow(block)


def test_the_front_pages_have_snippets_that_run() -> None:
    """README and the how-to pages are held to their word, not merely read."""
    assert ROOT / "README.md" in WITH_SNIPPETS
    assert {page for page in PAGES if page.parent.name == "howto"} <= set(WITH_SNIPPETS)


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_marker_marks_a_block(page: Path) -> None:
    """No marker is lost to a blank line or a typing error, which would leave its snippet untested."""
    text = page.read_text()
    outside = re.sub(r"`[^`\n]*`", "", text)  # pages that speak of markers quote them
    assert len(re.findall(r"<!-- *(?:test|setup)", outside)) == len(blocks(text))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_snippet_runs_or_says_why_not(page: Path) -> None:
    """A reader can type each `python` and shell block of a page; one that no test runs carries its reason."""
    assert not unmarked(page.read_text()), f"{_name(page)}: blocks without a marker begin at these lines"


def test_a_snippet_without_a_marker_is_found() -> None:
    """Only blocks of languages that could run count, and a reason must be given."""
    page = (
        "\n```sh\na\n```\n\n<!-- test -->\n```sh\nb\n```\n\n```text\nc\n```\n\n<!-- no test: slow -->\n```sh\nd\n```\n"
    )
    assert unmarked(page) == [2]
    assert unmarked(page.replace("no test: slow", "no test:")) == [2, 16]


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and picture of a page is a file of this repository, and every anchor a heading."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = (page.parent / file).resolve() if file else page
        assert there.exists(), f"{_name(page)} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", there.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
            assert anchor in slugs, f"{_name(page)} links to {target}"


@pytest.mark.parametrize("name", REFERENCE)
def test_the_reference_is_what_the_code_says(name: str) -> None:
    """docs/reference is as scripts/make_reference.py would write it now; `make reference` mends it."""
    assert (ROOT / "docs" / "reference" / name).read_text() == REFERENCE[name]()


def test_a_failing_snippet_fails(tmp_path: Path) -> None:
    """The runner reports the page's line and the command's own words, and sees an exit code that was not promised."""
    page = "# Title\n\n<!-- test -->\n```sh\necho told; exit 3\n```\n\n<!-- test: exit 3 -->\n```sh\nexit 3\n```\n"
    first, second = blocks(page)
    with Reader(tmp_path) as reader:
        with pytest.raises(AssertionError, match=r"line 4 ended with 3, not 0:\ntold"):
            reader.follow(first)
        reader.follow(second)
