from __future__ import annotations

import json
import subprocess
import sys

import pytest

# A module of 200,000 tracked objects, as large ones are, imported in a process of its own.
MODULE = "TABLE = [[n] for n in range(200_000)]\n"
MEASURE = """
import gc, json, sys
from dlrover_nb.core.runtime.process.lasting_imports import lasting_imports

def n_collection():
    return sum(generation["collections"] for generation in gc.get_stats())

if not {enabled}:
    gc.disable()
before = n_collection()
try:
    with lasting_imports():
        import big
        if {fails}:
            raise ImportError
except ImportError:
    pass
during = n_collection() - before
is_tracked = any(each is big.TABLE for each in gc.get_objects())
print(json.dumps([during, is_tracked, gc.isenabled()]))
"""


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_imports_are_never_collected_and_collection_is_as_it_was(tmp_path, enabled, fails):
    (tmp_path / "big.py").write_text(MODULE)
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n" + MEASURE.format(enabled=enabled, fails=fails)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == [0, False, enabled]


STARTS = """
import gc, sys
import dlrover_nb.core.runtime.process.lasting_imports

def n_collection():
    return sum(generation["collections"] for generation in gc.get_stats())

before, n_module = n_collection(), len(sys.modules)
import {program}.__main__
print(n_collection() - before, len(sys.modules) - n_module > 100, gc.isenabled())
"""


@pytest.mark.parametrize("program", ["dlrover_nb.core.backends.local", "dlrover_nb.core.runtime.node"])
def test_a_master_and_a_node_start_without_a_collection(program):
    code = STARTS.format(program=program)
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["0", "True", "True"]
