"""The mutants of `tools/mutants.py`: one of each line that runs in a function, the same each time."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

TOOLS = Path(__file__).resolve().parents[2] / "tools"
TEXT = '''
LIMIT = 3

def is_over(x: int = 3) -> bool:
    """Say it."""
    assert x >= 0
    return x > LIMIT

class Box:
    size: int = 3

    @property
    def half(self) -> float:
        return self.size / 2
'''
IN_FUNCTIONS = {7, 14}


@pytest.fixture
def source(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.delitem(sys.modules, "mutant_source", raising=False)
    return import_module("mutant_source")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "box.py").write_text(TEXT)
    return tmp_path / "box.py"


def test_each_line_that_runs_in_a_function_gives_one_mutant(source: ModuleType, path: Path) -> None:
    mutants = source.sample(path.parent, "room", [path], 9, 0)
    assert sorted(each.line for each in mutants) == sorted(IN_FUNCTIONS)
    assert len({each.id for each in mutants}) == len(IN_FUNCTIONS)


def test_the_draw_of_a_line_is_the_same_when_another_function_changes(source: ModuleType, path: Path) -> None:
    before = {each.id for each in source.sample(path.parent, "room", [path], 9, 0)}
    path.write_text(TEXT.replace("> LIMIT", "!= LIMIT"))
    after = {each.id for each in source.sample(path.parent, "room", [path], 9, 0)}
    assert len(before & after) == 1


def test_a_mutant_takes_the_place_of_the_function_that_is_loaded(source: ModuleType, path: Path) -> None:
    loaded: dict[str, object] = {}
    exec(compile(TEXT, str(path), "exec", dont_inherit=True), loaded)
    half = loaded["Box"].__dict__["half"].fget  # type: ignore[attr-defined]
    (mutant,) = (each for each in source.sample(path.parent, "room", [path], 9, 0) if each.line == 14)
    ((before, after),) = source.changed_functions(TEXT, mutant.source, str(path))
    assert isinstance(half, FunctionType)
    assert half.__code__ == before
    half.__code__ = after
    try:
        assert loaded["Box"]().half != 1.5  # type: ignore[operator]
    except TypeError:
        assert "None" in mutant.diff
