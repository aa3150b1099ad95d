"""Completions within a job file: keys and values that fit where the cursor is, in block and in flow style.

The text is unfinished while it is typed, so it is not parsed: lines above give the groups by indentation, and
open braces give those of flow style (``plan: {worker: {c``).
"""

from __future__ import annotations

import re

from dlrover_nb.core.jobfile import known_keys, known_values

_KEY = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_]+) *:")
_VALUE = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z_0-9]+) *: +(?P<value>\w*)$")
_PART = re.compile(
    r""" "(?:\\.|[^"\\])*"? | '[^']*'? | (?<!\S)\#[^\n]*   # quoted text, closed or not; a comment
    | [{}\[\],\n] | :(?=\s|$) | [^\s"'{}\[\],:]+ | : | [^\S\n]+""",
    re.VERBOSE,
)
_OPENS, _CLOSES = "{[", "}]"

Completion = tuple[str, tuple[str, ...]]  # (the part before the cursor to be replaced, what may replace it)


def complete_yaml(above: list[str], before: str) -> Completion:
    """Return the keys, or after a key the values, of a job file that fit where the cursor is.

    Parameters
    ----------
    above
        The lines above.
    before
        The part of the cursor's line before it.
    """
    text = "\n".join([*above, before])
    levels = _open(text)
    return _flow(text, levels) if levels else _block(above, before)


def _block(above: list[str], before: str) -> Completion:
    if match := _VALUE.match(before):
        group, _ = _position(above, len(match["indent"]))
        return _values([*group, match["key"]], match["value"])
    fragment = before.lstrip(" ")
    if not re.fullmatch(r"\w*", fragment):
        return "", ()
    group, used = _position(above, len(before) - len(fragment))
    return _keys(group, used, fragment)


def _keys(group: list[str], used: set[str], fragment: str) -> Completion:
    keys = known_keys(".".join(group))
    return fragment, tuple(f"{key}: " for key in keys if key.startswith(fragment) and key not in used)


def _values(path: list[str], fragment: str) -> Completion:
    return fragment, tuple(value for value in known_values(".".join(path)) if value.startswith(fragment))


def _position(above: list[str], depth: int) -> tuple[list[str], set[str]]:
    """Return the groups that contain a line of this indentation, and the keys used there already."""
    group, used = list[str](), set[str]()
    for text in reversed(above):
        match = _KEY.match(text)
        if not match:
            continue
        indent = len(match["indent"])
        if indent == depth and not group:
            used.add(match["key"])
        elif indent < depth:
            group.insert(0, match["key"])
            depth = indent
    return group, used


class _Level:
    """An open brace or bracket: where it stands, the key before it, and what was said in it so far."""

    def __init__(self, opened: str, at: int, key: str) -> None:
        self.opened, self.at, self.key = opened, at, key
        self.used = set[str]()
        self.words = list[str]()  # since the last comma

    @property
    def current(self) -> str:
        """The key whose value is being typed; empty where a key is."""
        return self.words[0] if ":" in self.words else ""


def _open(text: str) -> list[_Level]:
    """Return the braces and brackets that are open at the end of a text, outermost first."""
    levels, line = list[_Level](), list[str]()
    for match in _PART.finditer(text):
        part = match[0]
        words = levels[-1].words if levels else line
        if part in _OPENS:
            levels.append(_Level(part, match.start(), _key_of(words)))
        elif part in _CLOSES:
            if levels:
                levels.pop()
        elif levels and part == ",":
            levels[-1].used.add(_key_of(words))
            words.clear()
        elif part == "\n":
            line.clear()
        elif part.strip() and not part.startswith("#"):
            words.append(part)
    return levels


def _key_of(words: list[str]) -> str:
    return words[0].strip("\"'") if len(words) > 1 and words[1] == ":" else ""


def _flow(text: str, levels: list[_Level]) -> Completion:
    """Return what fits within open braces; nothing within a list or a quoted text."""
    innermost = levels[-1]
    start = text.rfind("\n", 0, levels[0].at) + 1
    line = text[start : levels[0].at]
    group = _position(text[:start].split("\n"), len(line) - len(line.lstrip(" ")))[0]
    if any(level.opened == "[" for level in levels):
        return "", ()
    path = [*group, *(level.key for level in levels if level.key)]
    fragment = re.search(r"\w*$", text)
    typed = "" if fragment is None else fragment[0]
    words = [word for word in innermost.words if word]
    if words == [typed] or not words:
        return _keys(path, innermost.used, typed)
    is_value = words[1:] in ([":"], [":", typed])
    has_gap = not text.removesuffix(typed).endswith(":")
    return _values([*path, words[0]], typed) if is_value and has_gap else ("", ())
