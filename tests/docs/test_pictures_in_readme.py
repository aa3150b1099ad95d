"""README's pictures: they are there, small, and described for those who do not see them."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_BYTES = 600_000
SHOWN = re.findall(r"!\[([^]]*)\]\((docs/pictures/[^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))


def test_each_picture_is_shown_once_and_described():
    assert {path for _, path in SHOWN} == {
        f"docs/pictures/{p.name}" for p in (ROOT / "docs/pictures").iterdir()
    }
    assert all(len(words.split()) > 10 for words, _ in SHOWN)


def test_the_pictures_are_small():
    assert 0 < sum((ROOT / path).stat().st_size for _, path in SHOWN) < MOST_BYTES
