"""HTML as users read it."""

from __future__ import annotations

import re
from html import unescape

import pytest

CELL_END = re.compile(r"</t[hd]>(?=<t[hd])")
INLINE = re.compile(r"</?(?:code|a)\b[^>]*>")
TAG = re.compile(r"<[^>]*>")


@pytest.fixture
def lines_of():
    """Give a function that returns what a browser shows of HTML: a line for each element, or row of a table."""

    def lines(html: str) -> str:
        rows = INLINE.sub("", CELL_END.sub(" | ", html))
        rows = re.sub(r"\| <t[hd][^>]*>", "| ", rows)
        texts = (" ".join(unescape(text).split()) for text in TAG.split(rows))
        return "\n".join(text for text in texts if text)

    return lines
