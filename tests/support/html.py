"""A page taken apart."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

VOID = {"meta", "link", "br"}


class Read(HTMLParser):
    """Tags as they nest, scripts and styles, rows of the tables, and all text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inline: list[tuple[str, dict[str, str | None], str]] = []
        self.rows: list[tuple[str, list[str]]] = []
        self.shown = ""
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(dict(attrs)) == len(attrs)
        self.tags.append((tag, dict(attrs)))
        if tag in ("script", "style"):
            self.inline.append((tag, dict(attrs), ""))
        if tag == "tr":
            self.rows.append((dict(attrs).get("class") or "", []))
        if tag in ("td", "th"):
            self.rows[-1][1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("script", "style"):
            tag, attrs, before = self.inline[-1]
            self.inline[-1] = (tag, attrs, before + data)
            return
        self.shown += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][1][-1] += data

    def data(self) -> Any:
        """What the charts are drawn from."""
        (text,) = [text for _, attrs, text in self.inline if attrs.get("id") == "charts"]
        return json.loads(text)

    def row(self, start: str) -> tuple[str, list[str]]:
        """The only row that begins with this."""
        (found,) = [row for row in self.rows if row[1][0] == start]
        return found


def loads_nothing(text: str) -> None:
    """No address but in uPlot's licence comments, no attribute that fetches; the policy allows just what is inside."""
    read = Read(text)
    outside = re.sub(r"/\*!.*?\*/", "", text, flags=re.DOTALL)
    assert "The MIT License" in text
    assert not re.search(r"@import|url\(", outside)
    fetching = {
        (tag, name, attrs[name]) for tag, attrs in read.tags for name in attrs if name in ("src", "href", "srcset")
    }
    assert {one for one in fetching if not (one[0] == "a" and (one[2] or "").startswith("#"))} == {
        ("link", "href", "data:,")
    }
    (policy,) = [attrs["content"] for _, attrs in read.tags if attrs.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    for tag, attrs, inside in read.inline:
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert (f"'sha256-{digest}'" in policy) == (attrs.get("type") != "application/json"), tag
    assert "unsafe" not in policy
