"""Print the figures of the code's structure, and fail where a rule of it is broken.

``python tools/structure.py`` reads the package's source without importing it and prints: files and lines, the
largest folders and the mean files of a folder, the share of import lines, lengths of functions, the longest
chain of imports, module names that occur more than once, import cycles, how many values are named after what
befell them, how often tests use private names, and how many tests quote sentences. With ``--check`` it exits
with 1 where two modules import each other in any way, or where a file, a folder, a function, the chain or one
of these three numbers is beyond its limit below. The limits are what the code had when they were set; they
are lowered as the code gets better, never raised. Imports that go up the layers are not looked for here,
since ``lint-imports`` refuses them. ``--chains`` prints the modules of all longest chains, each with what it
imports in one.

The share of import lines is that of import statements among the lines that are not blank, a comment or in a
docstring.

A value should be named after what it is (``rows``, ``limits``): what befell it (``found``, ``kept``) is seen
where it is assigned. Counted are parameters and names that are assigned, fields of records among them, of
which some stay: they are in the files of old jobs.

A test should see what users of the package see: one that uses private names fails with each change of the
inside. Counted are attributes with a leading underscore of anything but ``self`` and ``cls``, imports of such
names, and strings that name one to ``setattr`` and its like, unless it is a constant: a test that meets a
limit makes it small. A name that tests have themselves counts where the package has it too.

A sentence belongs in the snapshots beside its test, where a better word costs no edit. Counted are test
functions with a string of five words or more in what they assert or in what they expect of an error's text.
Texts under which an assertion only fails, after its comma, are none.

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
from functools import cache, partial
from graphlib import TopologicalSorter
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

PACKAGE = "dlrover_nb"
MOST_LINES = 600  # of a file
MOST_FILES = 16  # modules of a folder
MOST_FUNCTION_LINES = 80
MOST_CHAIN = 20  # modules of which each imports the next: this only falls
MOST_DIALECT = 19  # names of values: this only falls
MOST_REACHES = 321  # of tests into what is private: this only falls
MOST_QUOTING = 380  # tests with sentences in them: this only falls
N_SENTENCE = 5  # words of a sentence
REACHING = frozenset({"getattr", "setattr", "delattr", "hasattr", "object"})  # calls that name an attribute
DIALECT = frozenset({"found", "told", "known", "held", "kept", "asked", "seen", "said", "taken"})
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
N_NAMED = 5  # folders and rooms that are printed
KINDS = ("module level", "lazy", "TYPE_CHECKING")  # of an import, in the order in which cycles are counted

Graph = dict[str, set[str]]
Cycle = tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """One module: its file, its text, its syntax tree."""

    name: str
    path: Path
    text: str
    tree: ast.Module

    @property
    def n_line(self) -> int:
        """Its lines."""
        return self.text.count("\n")


@dataclass(frozen=True)
class Figures:
    """What is printed."""

    n_file: int
    n_line: int
    n_import_line: int
    n_code_line: int
    long_files: Mapping[str, int]
    function_lines: tuple[int, ...]
    long_functions: Mapping[str, int]
    cycles: Mapping[str, tuple[Cycle, ...]]
    longest_chain: tuple[str, ...]
    repeated: Mapping[str, int]
    folders: Mapping[str, int]
    dialect: Mapping[str, int]
    reaches: Mapping[str, int]
    quoting: Mapping[str, int]

    @property
    def large_folders(self) -> Mapping[str, int]:
        """Folders with too many files."""
        return {folder: n for folder, n in self.folders.items() if n > MOST_FILES}

    @property
    def n_dialect(self) -> int:
        """Values that are named after what befell them."""
        return sum(self.dialect.values())

    @property
    def n_reach(self) -> int:
        """Uses of private names of the package in its tests."""
        return sum(self.reaches.values())

    @property
    def n_quoting(self) -> int:
        """Tests that quote sentences of the package."""
        return sum(self.quoting.values())

    @property
    def is_sound(self) -> bool:
        """Whether no rule is broken."""
        is_large = self.long_files or self.long_functions or self.large_folders
        is_worse = (
            self.n_dialect > MOST_DIALECT
            or self.n_reach > MOST_REACHES
            or self.n_quoting > MOST_QUOTING
            or len(self.longest_chain) > MOST_CHAIN
        )
        return not (is_large or any(self.cycles.values()) or is_worse)


def read_sources(root: Path, package: str = PACKAGE) -> dict[str, Source]:
    """Return the modules of a package by dotted name."""
    sources = {}
    for path in sorted((root / package).rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        sources[name] = Source(name, path, text, ast.parse(text, str(path)))
    return sources


def imports_of(source: Source, modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the kind of each import of a module, and the module of the package that it names."""
    names, nodes = frozenset(modules), [(node, KINDS[0]) for node in source.tree.body]
    while nodes:
        node, kind = nodes.pop()
        if isinstance(node, ast.Import):
            yield from ((kind, alias.name) for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((kind, name) for name in _names_from(source, node, names))
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            nodes += [(child, KINDS[2]) for child in node.body]
            nodes += [(child, kind) for child in node.orelse]
        else:
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            inner = KINDS[1] if is_function and kind == KINDS[0] else kind
            nodes += [(child, inner) for child in ast.iter_child_nodes(node)]


def _names_from(source: Source, node: ast.ImportFrom, modules: frozenset[str]) -> set[str]:
    base = node.module or ""
    if node.level:
        parts = source.name.split(".")
        drop = node.level - (source.path.name == "__init__.py")
        base = ".".join([*parts[: len(parts) - drop], *([base] if base else [])])
    named = (f"{base}.{alias.name}" for alias in node.names)
    return {name if name in modules else base for name in named} & modules - {source.name}


def graphs(sources: Mapping[str, Source]) -> dict[str, Graph]:
    """Return who imports whom, for each kind of import."""
    by_kind: dict[str, Graph] = {kind: {name: set() for name in sources} for kind in KINDS}
    for source in sources.values():
        for kind, imported in imports_of(source, sources):
            by_kind[kind][source.name].add(imported)
    return by_kind


def find_cycles(graph: Graph) -> tuple[Cycle, ...]:
    """Return the strongly connected components of more than one module, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    cycles: list[Cycle] = []

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
                cycles.append(tuple(sorted(component)))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 10 * len(graph) + 1000))
    for name in sorted(graph):
        if name not in index:
            visit(name)
    return tuple(sorted(cycles))


def cycles_by_kind(by_kind: Mapping[str, Graph]) -> dict[str, tuple[Cycle, ...]]:
    """Return the cycles that the imports of each kind close, beyond those of the kinds before it."""
    whole: Graph = defaultdict(set)
    counted: set[Cycle] = set()
    new = {}
    for kind in KINDS:
        for name, others in by_kind[kind].items():
            whole[name] |= others
        cycles = find_cycles(whole)
        new[kind] = tuple(cycle for cycle in cycles if cycle not in counted)
        counted |= set(cycles)
    return new


def longest_chain(graph: Graph) -> tuple[str, ...]:
    """Return the longest row of modules of which each imports the next; empty where modules form a cycle."""
    if find_cycles(graph):
        return ()

    @cache
    def below(name: str) -> tuple[str, ...]:
        return max(((name, *below(other)) for other in graph[name]), key=len, default=(name,))

    return max((below(name) for name in TopologicalSorter(graph).static_order()), key=len, default=())


def on_longest_chains(graph: Graph) -> dict[str, tuple[str, ...]]:
    """Return the modules of all longest chains, the first ones first, and what each imports in one."""
    n_chain, above = len(longest_chain(graph)), defaultdict[str, set[str]](set)
    for name, others in graph.items():
        for other in others:
            above[other].add(name)
    below, before = _depths(graph), _depths({name: above[name] for name in graph})
    return {
        name: tuple(sorted(each for each in graph[name] if before[name] + below[each] == n_chain))
        for name in sorted(graph, key=lambda name: (before[name], name))
        if before[name] + below[name] - 1 == n_chain
    }


def _depths(graph: Graph) -> dict[str, int]:
    """Return the modules of the longest chain that begins with each."""
    depths: dict[str, int] = {}
    for name in TopologicalSorter(graph).static_order():
        depths[name] = 1 + max((depths[other] for other in graph[name]), default=0)
    return depths


def function_lines(sources: Iterable[Source]) -> list[tuple[int, str]]:
    """Return the lines of each function from its ``def`` to its end and its name, shortest first."""
    functions = (
        (node, f"{source.name}.{node.name}")
        for source in sources
        for node in ast.walk(source.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    return sorted((_n_line(node), name) for node, name in functions)


def n_import_line(source: Source) -> int:
    """Return the lines of a module's import statements."""
    nodes = ast.walk(source.tree)
    return sum(_n_line(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))


def n_code_line(source: Source) -> int:
    """Return the lines of a module that are not blank, a comment, or part of a docstring."""
    numbered = enumerate(map(str.strip, source.text.splitlines()), start=1)
    code = {number for number, line in numbered if line and not line.startswith("#")}
    return len(code.difference(*map(_docstring_lines, ast.walk(source.tree))))


def _docstring_lines(node: ast.AST) -> range:
    if not isinstance(node, _DOCUMENTED) or ast.get_docstring(node) is None:
        return range(0)
    return range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1)


def _n_line(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def n_dialect(source: Source) -> int:
    """Return how many assigned names and parameters of a module are words of `DIALECT`."""
    return sum(_assigned(node).lstrip("_") in DIALECT for node in ast.walk(source.tree))


def _assigned(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
            return name
        case _:
            return ""


def private_names(sources: Iterable[Source]) -> frozenset[str]:
    """Return the private names of a package: its functions and classes, and what is assigned."""
    named = (_private(node) for source in sources for node in ast.walk(source.tree))
    return frozenset(name for name in named if name)


def _private(node: ast.AST) -> str:
    match node:
        case (
            ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.Attribute(attr=name, ctx=ast.Store())
            | ast.Name(id=name, ctx=ast.Store())
        ) if name.startswith("_") and not name.endswith("_"):  # names of Python and IPython end with one
            return name
        case _:
            return ""


def n_reach(tree: ast.AST, private: frozenset[str]) -> int:
    """Return how often a test file uses private names of the package."""
    return sum(name in private for node in ast.walk(tree) for name in _reached(node))


def _reached(node: ast.AST) -> Iterable[str]:
    match node:
        case (
            ast.Attribute(value=ast.Name(id="self" | "cls"))
            | ast.Attribute(value=ast.Call(func=ast.Name(id="super")))
        ):
            return ()
        case ast.Attribute(attr=name):
            return (name,)
        case ast.ImportFrom(names=names):
            return tuple(alias.name for alias in names)
        case ast.Call(
            func=ast.Name(id=call) | ast.Attribute(attr=call), args=[_, ast.Constant(value=str(name)), *_]
        ) if call in REACHING:
            return () if name.isupper() else (name,)
        case _:
            return ()


def n_quoting(tree: ast.AST) -> int:
    """Return how many tests of a file quote a sentence."""
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return sum(any(map(_quotes, ast.walk(node))) for node in functions if node.name.startswith("test_"))


def _quotes(node: ast.AST) -> bool:
    match node:
        case ast.Assert(test=expected) | ast.keyword(arg="match", value=expected):
            return any(map(_is_sentence, ast.walk(expected)))
        case _:
            return False


def _is_sentence(node: ast.AST) -> bool:
    match node:
        case ast.Constant(value=str(text)):
            return text.count(" ") >= N_SENTENCE - 1
        case _:
            return False


def tests_by_folder(root: Path, count: Callable[[ast.AST], int]) -> dict[str, int]:
    """Return what is counted in the files of tests, by folder, most first."""
    counts = Counter[str]()
    for path in sorted((root / "tests").rglob("*.py")):
        folder = path.relative_to(root).parts[:-1][:3]
        counts["/".join(folder)] += count(ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return dict(counts.most_common())


def _folder(source: Source) -> str:
    return source.name if source.path.stem == "__init__" else source.name.rpartition(".")[0]


def _room(source: Source) -> str:
    return "/".join(source.name.split(".")[1:3]) or source.name


def measure(sources: Mapping[str, Source], root: Path) -> Figures:
    """Return the figures of a package and of the tests beside it."""
    by_kind, every = graphs(sources), sources.values()
    names = Counter(source.path.stem for source in every if source.path.stem != "__init__")
    lengths, dialect = function_lines(every), Counter[str]()
    for source in every:
        dialect[_room(source)] += n_dialect(source)
    return Figures(
        n_file=len(sources),
        n_line=sum(source.n_line for source in every),
        n_import_line=sum(map(n_import_line, every)),
        n_code_line=sum(map(n_code_line, every)),
        long_files={s.name: s.n_line for s in every if s.n_line > MOST_LINES},
        function_lines=tuple(n for n, _ in lengths),
        long_functions={name: n for n, name in lengths if n > MOST_FUNCTION_LINES},
        cycles=cycles_by_kind(by_kind),
        longest_chain=longest_chain(by_kind[KINDS[0]]),
        repeated={name: n for name, n in names.most_common() if n > 1},
        folders=dict(Counter(map(_folder, every)).most_common()),
        dialect=dict(dialect.most_common()),
        reaches=tests_by_folder(root, partial(n_reach, private=private_names(every))),
        quoting=tests_by_folder(root, n_quoting),
    )


def format_figures(figures: Figures) -> str:
    """Return the figures as text, one per line, with what breaks a rule below its figure."""
    lengths, n_chain = figures.function_lines or (0,), len(figures.longest_chain)
    p95 = lengths[round(0.95 * (len(lengths) - 1))]
    spread = f"median {median(lengths):g}, p95 {p95}, max {lengths[-1]}"
    n_folder, n_large = len(figures.folders), len(figures.large_folders)
    lines = [
        f"files                   {figures.n_file}",
        f"lines                   {figures.n_line}",
        f"share of import lines   {figures.n_import_line / max(figures.n_code_line, 1):.1%}",
        f"files of a folder       mean {figures.n_file / max(n_folder, 1):.1f}, the largest",
        *_named(figures.folders, max(N_NAMED, n_large)),
        f"folders over {MOST_FILES} files   {n_large}",
        f"functions               {len(figures.function_lines)}",
        f"lines of a function     {spread}",
        f"functions over {MOST_FUNCTION_LINES} lines {len(figures.long_functions)}",
        *_named(figures.long_functions),
        f"longest import chain    {n_chain or 'none: modules import each other'} (at most {MOST_CHAIN})",
        f"dialect in names        {figures.n_dialect} (at most {MOST_DIALECT}), most in",
        *_named(figures.dialect, N_NAMED),
        f"private names in tests  {figures.n_reach} (at most {MOST_REACHES}), most in",
        *_named(figures.reaches, N_NAMED),
        f"tests with sentences    {figures.n_quoting} (at most {MOST_QUOTING}), most in",
        *_named(figures.quoting, N_NAMED),
        f"repeated module names   {len(figures.repeated)}",
        *(f"  {n} x {name}" for name, n in figures.repeated.items()),
        f"files over {MOST_LINES} lines    {len(figures.long_files)}",
        *_named(figures.long_files),
    ]
    for kind, cycles in figures.cycles.items():
        lines.append(f"import cycles, {kind:<13} {len(cycles)}")
        lines += [f"  {' <-> '.join(cycle)}" for cycle in cycles]
    return "\n".join(lines)


def _named(counts: Mapping[str, int], most: int | None = None) -> list[str]:
    return [f"  {n} {name}" for name, n in list(counts.items())[:most]]


def main() -> int:
    """Print the figures; return 1 where ``--check`` finds a rule broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parents[1])
    parser.add_argument("--check", action="store_true", help="exit with 1 where a rule is broken")
    parser.add_argument(
        "--chains", action="store_true", help="print the modules of all longest chains instead"
    )
    options = parser.parse_args()
    sources = read_sources(options.root)
    if options.chains:
        chains = on_longest_chains(graphs(sources)[KINDS[0]])
        sys.stdout.writelines(f"{name} -> {' '.join(others)}\n" for name, others in chains.items())
        return 0
    figures = measure(sources, options.root)
    sys.stdout.write(format_figures(figures) + "\n")
    return 1 if options.check and not figures.is_sound else 0


if __name__ == "__main__":
    sys.exit(main())
