"""Laws of all benchmarks: each runs without arguments, is on the page, and prints its figures by one function.

They are read, not run: a run takes a minute.
"""

import ast
from pathlib import Path

from support.cases import for_each

ROOT = Path(__file__).parents[2]
SCRIPTS = {path.stem: path for path in sorted((ROOT / "benchmarks").glob("*.py"))}
PAGE = (ROOT / "docs/reference/benchmarks.md").read_text()
OTHER_LINE = {"lab", "notebook", "qore"}  # print a line of JSON of their own


def source(stem):
    return ast.parse(SCRIPTS[stem].read_text())


def is_program(stem):
    return 'if __name__ == "__main__"' in SCRIPTS[stem].read_text()


def is_benchmark(stem):
    """A program whose docstring says how people run it; other programs are started by benchmarks."""
    return f"python benchmarks/{stem}.py" in (ast.get_docstring(source(stem)) or "")


PROGRAMS = [stem for stem in SCRIPTS if is_program(stem)]
BENCHMARKS = [stem for stem in PROGRAMS if is_benchmark(stem)]


def main_of(stem):
    """Return the tree that has the benchmark's `main`, and that function: some have it in a module beside."""
    tree = source(stem)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == "main":
            return tree, node
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    beside = next(node.module for node in imported if [name.name for name in node.names] == ["main"])
    return main_of(beside)


def calls_of(tree, name):
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [
        node for node in calls if name in (getattr(node.func, "id", None), getattr(node.func, "attr", None))
    ]


def is_line_of_json(statement):
    """Whether it prints figures. What may follow it only says by the exit code that the run went wrong."""
    return isinstance(statement, ast.Expr) and bool(calls_of(statement, "print_figures"))


def test_there_are_benchmarks():
    assert len(BENCHMARKS) > 40


@for_each("stem", PROGRAMS)
def test_a_program_is_a_benchmark_or_started_by_one(stem):
    others = [path.read_text() for name, path in SCRIPTS.items() if name != stem]
    assert is_benchmark(stem) or any(stem in text for text in others)


@for_each("stem", BENCHMARKS)
def test_a_benchmark_is_on_the_page(stem):
    assert f"{stem}.py" in PAGE


@for_each("stem", BENCHMARKS)
def test_a_benchmark_has_help_and_needs_no_argument(stem):
    tree, _ = main_of(stem)
    assert calls_of(tree, "ArgumentParser")
    for call in calls_of(tree, "add_argument"):
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
        assert all(name.startswith("-") for name in names), f"{stem} needs {names}"
        assert "required" not in [each.arg for each in call.keywords], f"{stem} needs {names}"


@for_each("stem", [stem for stem in BENCHMARKS if stem not in OTHER_LINE])
def test_a_benchmark_reads_options_and_prints_figures_by_the_shared_functions(stem):
    tree, main = main_of(stem)
    assert calls_of(tree, "parsed"), "parse by lengths.parsed: it cleans up on SIGTERM"
    *_, last = [each for each in main.body if not isinstance(each, ast.If)]
    assert is_line_of_json(last)
    after = main.body[main.body.index(last) + 1 :]
    assert not any(calls_of(each, "print") for each in after)


@for_each("stem", [stem for stem in SCRIPTS if is_benchmark(stem) and stem not in OTHER_LINE])
def test_figures_are_printed_in_main_alone(stem):
    tree, main = main_of(stem)
    assert len(calls_of(tree, "print_figures")) == len(calls_of(main, "print_figures"))
