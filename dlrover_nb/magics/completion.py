"""What may come next in a line of `%dlrover` or a cell of `%%dlrover submit`: pure, from names already known.

No I/O happens here: a matcher runs at each key stroke, so jobs and proposals are those that the last `jobs`,
`status` or `plans` told of.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from dlrover_nb.core.jobfile import known_keys, known_values
from dlrover_nb.core.session import KINDS
from dlrover_nb.magics.arguments import parser_of, verbs
from dlrover_nb.magics.verbs import SUBMIT_FLAGS, VERBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.magics.commands import Session

_LINE = re.compile(r"(?:^|=)\s*%%?dlrover(?:\s+(?P<words>.*))?$", re.DOTALL)
_CELL = re.compile(r"\s*%%dlrover\s+submit\b")
_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_]+) *:")
_VALUE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_0-9]+) *: +(?P<value>\w*)$")
_FLAG_VALUES: dict[str, Callable[[Session], Iterable[str]]] = {
    "--plan": lambda session: ("current", *session.proposals.values()),
    "--retry": lambda session: chain(*session.set_aside.values()),
    "--skip": lambda session: chain(*session.set_aside.values()),
}
_FLAGS = {flag: path for flag, path, *_ in SUBMIT_FLAGS}


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
        return _yaml(lines[1:line], before)
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
    if verb == "submit" and (values := known_values(_FLAGS.get(last, "name"))):
        return values
    if last in _FLAG_VALUES:
        return _FLAG_VALUES[last](session)
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
            return known_values("mode")
        case "KIND":
            return KINDS
        case "VERB":
            return verbs()
    return ()


def _yaml(above: list[str], before: str) -> tuple[str, tuple[str, ...]]:
    """Return the keys, or after a key the values, of a job file that fit where the cursor is."""
    if found := _VALUE.match(before):
        group, _ = _position(above, len(found["indent"]))
        values = known_values(".".join([*group, found["key"]]))
        return found["value"], tuple(value for value in values if value.startswith(found["value"]))
    fragment = before.lstrip(" ")
    if not re.fullmatch(r"\w*", fragment):
        return "", ()
    group, used = _position(above, len(before) - len(fragment))
    keys = known_keys(".".join(group))
    return fragment, tuple(f"{key}: " for key in keys if key.startswith(fragment) and key not in used)


def _position(above: list[str], depth: int) -> tuple[list[str], set[str]]:
    """Return the groups that a line of this indentation stands in, and the keys used there already."""
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
    return group, used
