"""How Sphinx makes the site of docs/ (`make docs`), without asking any network.

The source folder is the repository, so that README files beside code and benchmarks are pages too, and a link from a
page to a file of code becomes a download. A link that leads nowhere, a missing anchor and a page that no list names are
warnings, and `make docs` takes warnings for errors. `include_patterns` decides what is a page. The lists stand at the
end of docs/index.md; a new page of a folder that is listed with `*` needs no line of its own.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

project = "onbudget"
copyright = "the onbudget founders, Apache License 2.0"
found = re.search(r'^__version__ = "(.+)"$', (ROOT / "src/onbudget/__init__.py").read_text(), re.MULTILINE)
assert found, "src/onbudget/__init__.py holds the version"
version = release = found[1]

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**.md", "CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md", "examples/*/README.md"]
exclude_patterns = [
    "docs/_build",
    "docs/_templates",
    "src",
    "tests",
    "scripts",
    "dist",
    "build",
    "**/.*",
    "**/__pycache__",
]

myst_heading_anchors = 4  # links to headings, spelled as code hosts spell them

html_theme = "furo"
html_title = f"onbudget {version}"
html_static_path = ["_static"]
html_css_files = ["onbudget.css"]
templates_path = ["_templates"]
html_additional_pages = {"index": "forward.html"}  # the root of the site leads to the front page
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0757b0", "color-brand-content": "#0757b0"},
    "dark_css_variables": {"color-brand-primary": "#79b8ff", "color-brand-content": "#79b8ff"},
}
