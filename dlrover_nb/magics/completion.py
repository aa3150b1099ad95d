"""What may come next in a line of `%dlrover` or a cell of `%%dlrover submit`: pure, from names already known.

No I/O happens here: a matcher runs at each key stroke, so jobs and proposals are those that the last `jobs`,
`status` or `plans` told of.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from dlrover_nb.core.jobfile import known_keys
from dlrover_nb.core.session import KINDS
from dlrover_nb.core.structs.job import DataFormat, Mode
from dlrover_nb.magics.arguments import parser_of, verbs
from dlrover_nb.magics.verbs import VERBS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.magics.commands import Session

_LINE = re.compile(r"(?:^|=)\s*%%?dlrover(?:\s+(?P<words>.*))?$", re.DOTALL)
_CELL = re.compile(r"\s*%%dlrover\s+submit\b")
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_]+) *:")
_VALUES = {"--mode": tuple(map(str, Mode)), "--format": tuple(map(str, DataFormat))}


def complete(session: Session, text: str, line: int, column: int) -> tuple[str, tuple[str, ...]]:
    """Return (the part before the cursor to be replaced, what may replace it).

    Parameters
    ----------
    session
        Names seen lately.
    text
        The whole cell.
    line, column
        Where the cursor is, from 0.
    """
    lines = text.split("\n")
    before = lines[line][:column]
    if line > 0 and _CELL.match(lines[0]):
        return _yaml_keys(lines[1:line], before)
    found = _LINE.search(before)
    if not found or found["words"] is None:
        return "", ()
    *words, fragment = re.split(r"\s+", found["words"])
    return fragment, tuple(c for c in _candidates(session, words, fragment) if c.startswith(fragment))


def _candidates(session: Session, words: list[str], fragment: str) -> Iterable[str]:
    if not words:
        return verbs()
    verb, last = words[0], words[-1]
    if verb not in VERBS:
        return ()
    parser = parser_of(verb)
    if last in _VALUES:
        return _VALUES[last]
    if last == "--plan":
        return ("current", *session.proposals.values())
    if fragment.startswith("-"):
        return (flag for flag in parser.flags if flag not in words)
    return (name for metavar in parser.positionals for name in _named(session, metavar))


def _named(session: Session, metavar: str) -> Iterable[str]:
    """Return what an argument may be."""
    match metavar:
        case "JOB":
            return sorted(session.jobs)
        case "PROPOSAL":
            return sorted(session.proposals.values())
        case "MODE":
            return _VALUES["--mode"]
        case "KIND":
            return KINDS
        case "VERB":
            return verbs()
    return ()


def _yaml_keys(above: list[str], before: str) -> tuple[str, tuple[str, ...]]:
    """Return the keys of a job file that fit where the cursor is, by its indentation."""
    fragment = before.lstrip(" ")
    if not re.fullmatch(r"\w*", fragment):
        return "", ()
    depth = len(before) - len(fragment)
    group, used = list[str](), set[str]()
    for text in reversed(above):
        found = _KEY.match(text)
        if not found:
            continue
        indent = len(found["indent"])
        if indent == depth and not group:
            used.add(found["key"])
        elif indent < depth:
            group.insert(0, found["key"])
            depth = indent
    keys = known_keys(".".join(group))
    return fragment, tuple(f"{key}: " for key in keys if key.startswith(fragment) and key not in used)
