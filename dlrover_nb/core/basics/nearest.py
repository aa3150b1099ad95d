"""What a person may have meant by a name that is not known."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_MOST = 3  # more is a list again


def did_you_mean(name: str, names: Iterable[str], *, otherwise: str = "") -> str:
    """Return the nearest known names as a question; where none is near, `otherwise`, or all of them."""
    names = list(names)
    near = nearest(name, names)
    return f"did you mean {' or '.join(near)}?" if near else otherwise or f"choose from {', '.join(names)}"


def nearest(name: str, names: Iterable[str]) -> list[str]:
    """Return the known names probably meant: by their words, else the one with the most alike letters."""
    names = list(names)
    return by_words(name, names) or difflib.get_close_matches(name, names, n=1)


def by_words(name: str, names: Iterable[str]) -> list[str]:
    """Return the one to three known names that have the words of another.

    Names of the same words come first (``--worker``: ``--workers``), then those that hold all its words
    (``--budget``: ``--budget-total``) or whose initials it is (``--lr``: ``--learning-rate``): people leave
    words out more often than they mistype.
    """
    names, words = list(names), _words(name)
    for means in (_is_same, _is_part):
        near = [each for each in names if words and means(words, _words(each))]
        if 0 < len(near) <= _MOST:
            return near
    return []


def _is_same(words: list[str], full: list[str]) -> bool:
    return words == full


def _is_part(words: list[str], full: list[str]) -> bool:
    return set(words) <= set(full) or (len(full) > 1 and words == ["".join(word[0] for word in full)])


def _words(name: str) -> list[str]:
    """Return the words of a name, each without the s of a plural."""
    return [word.removesuffix("s") or word for word in re.split(r"[\W_]+", name.lower()) if word]
