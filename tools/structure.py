"""Print the figures of the code's structure, and fail where a rule of it is broken.

``python tools/structure.py`` reads the package's source without importing it and prints: files and lines, the
largest folders, lengths of functions, import cycles, the longest chain of imports, and module names that
occur more than once. With ``--check`` it exits with 1 where two modules import each other in any way, or a
file is over 600 lines.

A cycle is a strongly connected component of modules. Three kinds are told apart by the imports that close it:
those at module level (the modules cannot be loaded one after the other), those within functions (lazy: the
order of loading is hidden), and those under ``TYPE_CHECKING`` (neither module can be read without the other).
A cycle that an import of an earlier kind closes is not counted again with a later kind.

An import of a name from a package is an import of the package, unless the name is a module of it. That a
module's parents are loaded before it is left out, as import-linter leaves it out.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PACKAGE = "dlrover_nb"
MOST_LINES = 600  # of a file
N_FOLDER = 5  # that are named
KINDS = ("module level", "lazy", "TYPE_CHECKING")  # of an import, in the order in which cycles are counted

Graph = dict[str, set[str]]
Cycle = tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """One module: its file, its text's length, its syntax tree."""

    name: str
    path: Path
    n_line: int
    tree: ast.Module


@dataclass(frozen=True)
class Figures:
    """What is printed; `long_files` and `cycles` are what ``--check`` refuses."""

    n_file: int
    n_line: int
    long_files: Mapping[str, int]
    function_lines: tuple[int, ...]
    cycles: Mapping[str, tuple[Cycle, ...]]
    longest_chain: tuple[str, ...]
    repeated: Mapping[str, int]
    largest_folders: Mapping[str, int]

    @property
    def is_sound(self) -> bool:
        """Whether no rule is broken."""
        return not self.long_files and not any(self.cycles.values())


def read_sources(root: Path, package: str = PACKAGE) -> dict[str, Source]:
    """Return the modules of a package by dotted name."""
    found = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Source(name, path, text.count("\n"), ast.parse(text, str(path)))
    return found


def imports_of(source: Source, modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the kind of each import of a module, and the module of the package that it names."""
    known, seen = frozenset(modules), [(node, KINDS[0]) for node in source.tree.body]
    while seen:
        node, kind = seen.pop()
        if isinstance(node, ast.Import):
            yield from ((kind, alias.name) for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            yield from ((kind, name) for name in _names_from(source, node, known))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            seen += [(child, KINDS[2]) for child in node.body]
            seen += [(child, kind) for child in node.orelse]
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            inner = KINDS[1] if is_function and kind == KINDS[0] else kind
            seen += [(child, inner) for child in ast.iter_child_nodes(node)]


def _names_from(source: Source, node: ast.ImportFrom, known: frozenset[str]) -> set[str]:
    base = node.module or ""
    if node.level:
        parts = source.name.split(".")
        drop = node.level - (source.path.name == "__init__.py")
        base = ".".join([*parts[: len(parts) - drop], *([base] if base else [])])
    named = (f"{base}.{alias.name}" for alias in node.names)
    return {name if name in known else base for name in named} & known - {source.name}


def graphs(sources: Mapping[str, Source]) -> dict[str, Graph]:
    """Return who imports whom, for each kind of import."""
    found: dict[str, Graph] = {kind: {name: set() for name in sources} for kind in KINDS}
    for source in sources.values():
        for kind, imported in imports_of(source, sources):
            found[kind][source.name].add(imported)
    return found


def find_cycles(graph: Graph) -> tuple[Cycle, ...]:
    """Return the strongly connected components of more than one module, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[Cycle] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            component = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(component) > 1:
                found.append(tuple(sorted(component)))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return tuple(sorted(found))


def cycles_by_kind(by_kind: Mapping[str, Graph]) -> dict[str, tuple[Cycle, ...]]:
    """Return the cycles that the imports of each kind close, beyond those of the kinds before it."""
    whole: Graph = defaultdict(set)
    counted: set[Cycle] = set()
    found = {}
    for kind in KINDS:
        for name, others in by_kind[kind].items():
            whole[name] |= others
        cycles = find_cycles(whole)
        found[kind] = tuple(cycle for cycle in cycles if cycle not in counted)
        counted |= set(cycles)
    return found


def longest_chain(graph: Graph) -> tuple[str, ...]:
    """Return the longest row of modules of which each imports the next; empty where modules form a cycle."""
    if find_cycles(graph):
        return ()

    @cache
    def below(name: str) -> tuple[str, ...]:
        return max(((name, *below(other)) for other in graph[name]), key=len, default=(name,))

    return max((below(name) for name in TopologicalSorter(graph).static_order()), key=len, default=())


def function_lines(sources: Iterable[Source]) -> tuple[int, ...]:
    """Return the lines of each function from its ``def`` to its end, shortest first."""
    functions = (
        node
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return tuple(sorted((node.end_lineno or node.lineno) - node.lineno + 1 for node in functions))


def _folder(source: Source) -> str:
    return source.name if source.path.stem == "__init__" else source.name.rpartition(".")[0]


def measure(sources: Mapping[str, Source]) -> Figures:
    """Return the figures of a package."""
    by_kind = graphs(sources)
    names = Counter(source.path.stem for source in sources.values() if source.path.stem != "__init__")
    return Figures(
        n_file=len(sources),
        n_line=sum(source.n_line for source in sources.values()),
        long_files={s.name: s.n_line for s in sources.values() if s.n_line > MOST_LINES},
        function_lines=function_lines(sources.values()),
        cycles=cycles_by_kind(by_kind),
        longest_chain=longest_chain(by_kind[KINDS[0]]),
        repeated={name: n for name, n in names.most_common() if n > 1},
        largest_folders=dict(Counter(map(_folder, sources.values())).most_common(N_FOLDER)),
    )


def format_figures(figures: Figures) -> str:
    """Return the figures as text, one per line, with what breaks a rule below its figure."""
    lengths, n_chain = figures.function_lines or (0, 0), len(figures.longest_chain)
    spread = f"median {median(lengths):g}, p95 {quantiles(lengths, n=20)[-1]:g}, max {lengths[-1]}"
    lines = [
        f"files                   {figures.n_file}",
        f"lines                   {figures.n_line}",
        "largest folders",
        *(f"  {n} {folder}" for folder, n in figures.largest_folders.items()),
        f"functions               {len(figures.function_lines)}",
        f"lines of a function     {spread}",
        f"longest import chain    {n_chain or 'none: modules import each other'}",
        f"repeated module names   {len(figures.repeated)}",
        *(f"  {n} x {name}" for name, n in figures.repeated.items()),
        f"files over {MOST_LINES} lines    {len(figures.long_files)}",
        *(f"  {n} {name}" for name, n in figures.long_files.items()),
    ]
    for kind, cycles in figures.cycles.items():
        lines.append(f"import cycles, {kind:<13} {len(cycles)}")
        lines += [f"  {' <-> '.join(cycle)}" for cycle in cycles]
    return "\n".join(lines)


def main() -> int:
    """Print the figures; return 1 where ``--check`` finds a rule broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a rule is broken")
    options = parser.parse_args()
    figures = measure(read_sources(options.root))
    sys.stdout.write(format_figures(figures) + "\n")
    return 1 if options.check and not figures.is_sound else 0


if __name__ == "__main__":
    sys.exit(main())
