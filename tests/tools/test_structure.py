"""The tool that measures the structure, on packages that are written for it."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "structure.py"


@pytest.fixture(scope="module")
def structure():
    spec = importlib.util.spec_from_file_location("structure", TOOL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def write(tmp_path):
    def files(tests: str = "", **texts: str) -> Path:
        for folder in ("dlrover_nb", "tests/one/two/three"):
            (tmp_path / folder).mkdir(parents=True)
        for name, text in {"__init__": "", **texts}.items():
            (tmp_path / "dlrover_nb" / f"{name}.py").write_text(text)
        (tmp_path / "tests/one/two/three/test_four.py").write_text(tests)
        return tmp_path

    return files


def figures_of(structure, root: Path):
    return structure.measure(structure.read_sources(root), root)


MODULE = "from dlrover_nb import {0}\n"
LAZY = "def load():\n    from dlrover_nb.{0} import x\n    return x\n"
TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dlrover_nb.{0} import x\n"


@pytest.mark.parametrize(
    ("closing", "kind"), [(MODULE, "module level"), (LAZY, "lazy"), (TYPES, "TYPE_CHECKING")]
)
def test_a_cycle_is_counted_once_with_the_kind_of_the_import_that_closes_it(structure, write, closing, kind):
    root = write(one=MODULE.format("two"), two=closing.format("one"), three=MODULE.format("one"))
    figures = figures_of(structure, root)
    cycle = ("dlrover_nb.one", "dlrover_nb.two")
    assert figures.cycles == {each: (cycle,) if each == kind else () for each in structure.KINDS}
    assert not figures.is_sound


def test_the_longest_chain_follows_relative_imports_and_leaves_out_other_packages(structure, write):
    root = write(one="import os\nfrom . import two\n", two="from .three import x\n", three="x = 1\n")
    figures = figures_of(structure, root)
    assert figures.longest_chain == ("dlrover_nb.one", "dlrover_nb.two", "dlrover_nb.three")
    assert figures.is_sound


def test_a_chain_that_is_too_long_is_unsound_and_its_modules_are_named(structure, write, monkeypatch):
    root = write(one=MODULE.format("two"), two=MODULE.format("three"), three="x = 1\n")
    monkeypatch.setattr(structure, "MOST_CHAIN", 3)
    assert figures_of(structure, root).is_sound
    for name, imported in {"first": "one", "side": "two"}.items():
        (root / "dlrover_nb" / f"{name}.py").write_text(MODULE.format(imported))
    assert not figures_of(structure, root).is_sound
    graph = structure.graphs(structure.read_sources(root))["module level"]
    chains = structure.on_longest_chains(graph)
    assert [name.rpartition(".")[2] for name in chains] == ["first", "one", "two", "three"]
    assert chains["dlrover_nb.one"] == ("dlrover_nb.two",)


LONG_FILE = "x = 1\n" * 600
LONG_FUNCTION = "def work():\n" + "    x = 1\n" * 79


@pytest.mark.parametrize(
    ("sound", "more", "line"),
    [
        ({"long": LONG_FILE}, {"long": LONG_FILE + "x = 1\n"}, "601 dlrover_nb.long"),
        ({"long": LONG_FUNCTION}, {"long": LONG_FUNCTION + "    x = 2\n"}, "81 dlrover_nb.long.work"),
        ({f"m{i}": "" for i in range(15)}, {"m15": ""}, "17 dlrover_nb"),
    ],
    ids=["file", "function", "folder"],
)
def test_the_check_fails_beyond_a_limit_and_names_what_is_beyond_it(write, sound, more, line):
    root = write(**sound)
    check = [sys.executable, str(TOOL), str(root), "--check"]
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    for name, text in more.items():
        (root / "dlrover_nb" / f"{name}.py").write_text(text)
    refused = subprocess.run(check, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert f"  {line}\n" in refused.stdout


DIALECT = """
def visit(told, *, known=None):
    _found: int = told.asked
    for seen in known:
        kept = [said for said in seen.held(taken=1)]
    with (held := kept):
        return found
"""


def test_assigned_names_and_parameters_of_the_dialect_are_counted_but_not_attributes_and_uses(
    structure, write
):
    figures = figures_of(structure, write(one=DIALECT, two="found = 1\n", three="x = 1\n"))
    assert figures.dialect == {"one": 7, "two": 1, "three": 0, "dlrover_nb": 0}


def test_the_check_fails_on_more_names_of_the_dialect_than_there_were(structure, write):
    root = write(one="found = " * structure.MOST_DIALECT + "1\n")
    assert figures_of(structure, root).is_sound
    (root / "dlrover_nb" / "two.py").write_text("kept = 1\n")
    assert not figures_of(structure, root).is_sound


PRIVATE = """
_LIMIT = 3

def _tell(): ...

class _Screen:
    def _draw(self):
        self._text = ""
        self._repr_mimebundle_ = None
"""
REACHING = """
import one
from dlrover_nb.one import _Screen, _tell, screen

screen._text = screen._draw()
monkeypatch.setattr(screen, "_draw", None)
mock.patch.object(screen, "_draw")
"""
SEEING = """
class TestScreen(Screen):
    def test(self, cls):
        self._draw(super()._draw(), cls._draw)

monkeypatch.setattr(one, "_LIMIT", 1)
screen._repr_mimebundle_ + library._inside + "_draw" + screen.draw(1, "_draw")
"""


def test_private_names_are_counted_in_tests_where_the_package_has_them(structure, write):
    figures = figures_of(structure, write(tests=REACHING + SEEING, one=PRIVATE))
    assert figures.reaches == {"tests/one/two": 6}


def test_the_check_fails_on_more_private_names_in_tests_than_there_were(structure, write):
    root = write(tests="screen._draw\n" * structure.MOST_REACHES, one=PRIVATE)
    assert figures_of(structure, root).is_sound
    (root / "tests" / "test_more.py").write_text("screen._draw\n")
    assert not figures_of(structure, root).is_sound


QUOTING = """
def test_equal(view):
    assert view == "a plan of five words"

async def test_part(view):
    assert view.a == 1
    assert f"{view.n} plans of just five words" in view.text

def test_error():
    with pytest.raises(ValueError, match="expected a plan, got none"):
        refuse()
"""
NOT_QUOTING = """
def test_short(words):
    assert view == "no more than four"
    assert view == words, "a text of why it failed"
    say("a text that goes in")

def text_of(view):
    assert view == "a plan of five words"
"""


def test_tests_are_counted_once_that_quote_a_sentence_of_what_they_test(structure, write):
    figures = figures_of(structure, write(tests=QUOTING + NOT_QUOTING))
    assert figures.quoting == {"tests/one/two": 3}


def test_the_check_fails_on_more_tests_with_sentences_than_there_were(structure, write):
    test = "def test_equal(view):\n    assert view == 'a plan of five words'\n"
    root = write(tests=test * structure.MOST_QUOTING)
    assert figures_of(structure, root).is_sound
    (root / "tests" / "test_more.py").write_text(test)
    assert not figures_of(structure, root).is_sound


CODE = '''"""Say what it is for.

# no comment, and no code either
"""

import os
from sys import (
    argv,
)

# a comment
class Empty:
    """Nothing."""

    def close(self):
        """Do nothing.

        At all.
        """
        text = """of two
        lines"""
        return text, os, argv
'''


def test_the_share_of_imports_is_of_lines_that_are_not_blank_comments_or_docstrings(structure, write):
    figures = figures_of(structure, write(one=CODE))
    assert (figures.n_import_line, figures.n_code_line) == (4, 9)
