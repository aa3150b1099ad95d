"""Sample mutants of the core's functions: the operators are mutmut's, the draw is by line.

A mutant is one small change of a function's body, such as ``<`` for ``<=``. Lines are drawn, not mutants, and
each gives one: a call with four arguments has eight mutants, and would hide the comparison beside it. A
line's place in the draw is a digest of its text, so that a change of one function leaves the sample of all
others as it was.

Left out: texts (tests say what they must contain), assertions, and what runs once at import (defaults,
decorators, annotations). mutmut's own runner is not used: it leaves out properties and other decorated
functions, and each of its mutants collects the tests anew.
"""

from __future__ import annotations

import hashlib
import inspect
from bisect import bisect_right
from dataclasses import asdict, dataclass
from difflib import unified_diff
from itertools import accumulate, islice
from types import CodeType
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper
from mutmut.mutation.mutators import mutation_operators, operator_string

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

NEVER = (cst.Annotation, cst.Assert, cst.Decorator, cst.Parameters, cst.SimpleString, cst.ClassDef)


@dataclass(frozen=True)
class Mutant:
    """One change of one line: `source` is the whole module with it."""

    room: str
    path: str
    line: int
    source: str
    diff: str

    @property
    def id(self) -> str:
        """Name it by what it changes and the lines around, wherever in the module these stand now."""
        return digest(*(line for line in self.diff.splitlines() if not line.startswith("@@")))[:16]

    def document(self) -> dict[str, object]:
        """Return what is stored of it."""
        return asdict(self)


@dataclass(frozen=True)
class _Place:
    """A node, what replaces it, and the operator that says so."""

    line: int
    begin: int  # of its text in the module, in bytes
    operator: str
    node: cst.CSTNode
    replacement: cst.CSTNode


class Module(NamedTuple):
    """A module's text and its tree."""

    text: str
    tree: cst.Module


class _Visitor(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (ByteSpanPositionProvider,)

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: list[_Place] = []
        self._depth = 0
        self._starts = list(accumulate(len(line.encode()) for line in text.splitlines(keepends=True)))

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, NEVER):
            return isinstance(node, cst.ClassDef) and self._depth == 0
        if self._depth and not isinstance(node, cst.FunctionDef):
            self._note(node)
        self._depth += isinstance(node, cst.FunctionDef)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        self._depth -= isinstance(original_node, cst.FunctionDef)

    def _note(self, node: cst.CSTNode) -> None:
        span = self.get_metadata(ByteSpanPositionProvider, node, None)
        if span is None:
            return
        line = bisect_right(self._starts, span.start) + 1
        for kind, operator in mutation_operators:
            if isinstance(node, kind) and operator is not operator_string:
                for changed in operator(node):
                    self.places.append(_Place(line, span.start, operator.__name__, node, changed))


def sample(root: Path, room: str, paths: Iterable[Path], n: int, seed: int) -> list[Mutant]:
    """Return `n` mutants of a room; fewer where it has fewer lines that can be changed."""
    return list(islice(_ranked(root, room, paths, seed), n))


def digest(*words: object) -> str:
    """Return a number that depends on the words alone."""
    return hashlib.sha256("\0".join(map(str, words)).encode()).hexdigest()


def _ranked(root: Path, room: str, paths: Iterable[Path], seed: int) -> Iterator[Mutant]:
    """Yield a mutant of each line of a room, in the order of the draw."""
    lines = [(rank, path, places) for path in paths for rank, places in _lines(root, path, seed)]
    for _, path, (module, places) in sorted(lines, key=lambda each: each[0]):
        if (mutant := _first_sound(room, str(path.relative_to(root)), module, places)) is not None:
            yield mutant


def _lines(root: Path, path: Path, seed: int) -> Iterator[tuple[str, tuple[Module, list[_Place]]]]:
    """Yield each line that can be changed with its rank; its places in the order in which they are tried."""
    source = path.read_text(encoding="utf-8")
    wrapper, visitor = MetadataWrapper(cst.parse_module(source)), _Visitor(source)
    wrapper.visit(visitor)
    by_line: dict[int, list[_Place]] = {}
    for place in visitor.places:
        by_line.setdefault(place.line, []).append(place)
    text = source.splitlines()
    seen: dict[str, int] = {}
    for line, places in sorted(by_line.items()):
        words = text[line - 1].strip()
        seen[words] = seen.get(words, 0) + 1
        rank = digest(seed, path.relative_to(root), words, seen[words])
        yield rank, (Module(source, wrapper.module), _shuffled(places, rank))


def _shuffled(places: list[_Place], rank: str) -> list[_Place]:
    """Order by operator, then by place, both by lot: an operator with many places has one lot."""
    lots = {id(each): digest(rank, each.operator, at) for at, each in enumerate(places)}
    return sorted(places, key=lambda each: (digest(rank, each.operator), lots[id(each)]))


def _first_sound(room: str, path: str, module: Module, places: list[_Place]) -> Mutant | None:
    """Return the first change that compiles, changes code, and can be put in place of what is loaded."""
    for place in places:
        try:
            mutated = _mutated(module, place)
            if changed_functions(module.text, mutated, path):
                return Mutant(room, path, place.line, mutated, _diff(module.text, mutated, path))
        except (SyntaxError, ValueError):
            continue
    return None


def _mutated(module: Module, place: _Place) -> str:
    """Return the module's text with the change: its text is put in place, as to copy the tree takes long."""
    tree, text = module.tree, module.text.encode()
    old, new = (tree.code_for_node(each).strip().encode() for each in (place.node, place.replacement))
    if not text.startswith(old, place.begin):
        return str(tree.deep_replace(place.node, place.replacement).code)  # type: ignore[attr-defined]
    return (text[: place.begin] + new + text[place.begin + len(old) :]).decode()


def _diff(before: str, after: str, name: str) -> str:
    return "".join(
        unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name, n=1)
    )


def changed_functions(before: str, after: str, path: str) -> list[tuple[CodeType, CodeType]]:
    """Return the code of each function that differs, as it was and as it becomes, outer ones first.

    Raises
    ------
    ValueError
        The two have other functions or closures, so that one cannot be put in the other's place.
    """
    return list(_changed(*(compile(text, path, "exec", dont_inherit=True) for text in (before, after))))


def _changed(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    if before == after:
        return
    is_function = bool(before.co_flags & inspect.CO_OPTIMIZED)
    if is_function:
        yield before, after
    inner, new = _codes(before), _codes(after)
    if [_shape(each) for each in inner] == [_shape(each) for each in new]:
        for pair in zip(inner, new, strict=True):
            yield from _changed(*pair)
    elif not is_function:
        raise ValueError(
            f"{before.co_name} has other functions"
        )  # those within a function are made by its new code


def _codes(code: CodeType) -> list[CodeType]:
    return [each for each in code.co_consts if isinstance(each, CodeType)]


def _shape(code: CodeType) -> tuple[object, ...]:
    return code.co_name, code.co_freevars
