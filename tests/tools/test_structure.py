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
    def files(**texts: str) -> Path:
        (tmp_path / "dlrover_nb").mkdir()
        for name, text in {"__init__": "", **texts}.items():
            (tmp_path / "dlrover_nb" / f"{name}.py").write_text(text)
        return tmp_path

    return files


MODULE = "from dlrover_nb import {0}\n"
LAZY = "def load():\n    from dlrover_nb.{0} import x\n    return x\n"
TYPES = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from dlrover_nb.{0} import x\n"


@pytest.mark.parametrize(
    ("closing", "kind"), [(MODULE, "module level"), (LAZY, "lazy"), (TYPES, "TYPE_CHECKING")]
)
def test_a_cycle_is_counted_once_with_the_kind_of_the_import_that_closes_it(structure, write, closing, kind):
    root = write(one=MODULE.format("two"), two=closing.format("one"), three=MODULE.format("one"))
    found = structure.measure(structure.read_sources(root))
    cycle = ("dlrover_nb.one", "dlrover_nb.two")
    assert found.cycles == {each: (cycle,) if each == kind else () for each in structure.KINDS}
    assert not found.is_sound


def test_the_longest_chain_follows_relative_imports_and_leaves_out_other_packages(structure, write):
    root = write(one="import os\nfrom . import two\n", two="from .three import x\n", three="x = 1\n")
    found = structure.measure(structure.read_sources(root))
    assert found.longest_chain == ("dlrover_nb.one", "dlrover_nb.two", "dlrover_nb.three")
    assert found.is_sound


def test_the_check_fails_on_a_long_file_and_names_it(write):
    root = write(short="x = 1\n" * 600)
    check = [sys.executable, str(TOOL), str(root), "--check"]
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    (root / "dlrover_nb" / "long.py").write_text("x = 1\n" * 601)
    refused = subprocess.run(check, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "601 dlrover_nb.long" in refused.stdout
