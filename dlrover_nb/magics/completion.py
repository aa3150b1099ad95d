"""Completions for a line of `%dlrover` or a cell of `%%dlrover submit`, from names already known.

A matcher runs at each key stroke, so it makes no request: jobs, plans, nodes, shards and runs are those that
verbs such as `jobs`, `status` and `history` returned. Files and the names in a kubeconfig are the exception:
they are read from the disk, as a shell does at the same key.
"""

from __future__ import annotations

import os
import re
from itertools import islice
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.contexts import known_contexts
from dlrover_nb.core.connect.kinds import kind_names
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import known_keys, known_values
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.cell import looks_like_yaml
from dlrover_nb.magics.parser import OneOf
from dlrover_nb.magics.session import Names
from dlrover_nb.magics.yaml_completion import complete_yaml

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable

    from dlrover_nb.magics.parser import Parser
    from dlrover_nb.magics.session import Session

N_FILE = 200  # entries of one folder that are considered
_LINE = re.compile(r"(?:^|=)\s*%%?dlrover(?:\s+(?P<words>.*))?$", re.DOTALL)
_CELL = re.compile(r"\s*%%dlrover\s+submit\b")

_FIXED: dict[str, Callable[[], tuple[str, ...]]] = {
    "KIND": kind_names,
    "MODEL": lambda: known_values("model.name"),
    "YES|NO": lambda: ("yes", "no"),
    "CONTEXT": lambda: known_contexts().contexts,
    "NAMESPACE": lambda: known_contexts().namespaces,
}


def complete(session: Session, text: str, line: int, column: int) -> tuple[str, tuple[str, ...]]:
    """Return (the part before the cursor to be replaced, what may replace it).

    Parameters
    ----------
    session
        Names from earlier results.
    text
        The whole cell.
    line, column
        Where the cursor is, from 0.
    """
    lines = text.split("\n")
    before = lines[line][:column]
    if line > 0 and _CELL.match(lines[0]):
        return complete_yaml(lines[1:line], before) if looks_like_yaml("\n".join(lines[1:line])) else ("", ())
    match = _LINE.search(before)
    if not match or match["words"] is None:
        return "", ()
    *words, fragment = re.split(r"\s+", match["words"])
    return fragment, tuple(c for c in _candidates(session, words, fragment) if c.startswith(fragment))


def _candidates(session: Session, words: list[str], fragment: str) -> Iterable[str]:
    if not words:
        return _verbs(fragment)
    try:
        parser, others = GRAMMAR.offered(words[0], words[1:])
    except InvalidValueError:  # no such verb, or flags that do not go together
        return ()
    job = next((word for word in words[1:] if word in session.jobs), None)
    if (flag := parser.action_of(words[-1])) is not None:
        return _values(session, flag, job, fragment)
    if fragment.startswith("-"):
        return (each for each in dict.fromkeys((*parser.flags, *others)) if each not in words)
    behind = (each for each in others if not each.startswith("-") and len(words) == 1)
    return (*behind, *_positional(session, parser, job, fragment))


def _verbs(fragment: str) -> Iterable[str]:
    """Return the verbs; old names only where no other begins so."""
    words = (*GRAMMAR.words, "help")
    return words if any(each.startswith(fragment) for each in words) else GRAMMAR.verbs


def _positional(session: Session, parser: Parser, job: str | None, fragment: str) -> Iterable[str]:
    """Return the possible words without a flag: a job once, then what belongs to it."""
    for action in parser.positionals:
        if action.metavar != "JOB" or job is None:
            yield from _values(session, action, job, fragment)


def _values(session: Session, action: argparse.Action, job: str | None, fragment: str) -> Iterable[str]:
    """Return what an argument may be."""
    if isinstance(action.type, OneOf):
        return action.type.names
    match action.metavar:
        case "FILE" | "ROWS" | "NAME|FILE":
            return _files(fragment)
        case "KEY=VALUE":
            return _settings(fragment)
        case "VERB":
            return _verbs(fragment)
        case "KIND" | "MODEL" | "YES|NO" | "CONTEXT" | "NAMESPACE" as fixed:
            return _FIXED[fixed]()
    return _known(session, str(action.metavar), job)


def _known(session: Session, metavar: str, job: str | None) -> Iterable[str]:
    """Return names from the results of earlier verbs."""
    if metavar == "JOB":
        return sorted(session.jobs)
    if metavar == "RUN":
        return session.runs.get(job, ()) if job else [r for ids in session.runs.values() for r in ids]
    names = [session.names.get(job, Names())] if job else session.names.values()
    values = list(dict.fromkeys(name for each in names for name in each.of(metavar)))
    return ["current", *values] if metavar == "PLAN" else values


def _settings(fragment: str) -> Iterable[str]:
    """Return the keys of a job file by their paths, a group with its dot."""
    group, dot, _ = fragment.rpartition(".")
    for key in known_keys(group):
        path = f"{group}{dot}{key}"
        yield f"{path}." if known_keys(path) else f"{path}="


def _files(fragment: str) -> Iterable[str]:
    """Return files and folders that begin so; names that would need quotes are left out."""
    folder, slash, start = fragment.rpartition("/")
    try:
        with os.scandir(os.path.expanduser(f"{folder}{slash}") or ".") as entries:  # noqa: PTH111 - "/" stays
            names = sorted(
                islice((e.name + "/" * e.is_dir() for e in entries if e.name.startswith(start)), N_FILE)
            )
    except (OSError, ValueError):  # no such folder, or a name that none can have
        return
    for name in names:
        if not re.search(r"[\s'\"\\]", name) and (start or not name.startswith(".")):
            yield f"{folder}{slash}{name}"
