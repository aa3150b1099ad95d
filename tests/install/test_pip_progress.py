"""The line that `make install` shows while pip works: read from pip's own output, true at any moment."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import pip_progress  # noqa: E402 - a script that no package holds

OUTPUT = """\
Collecting numpy>=1.26 (from -c constraints.txt (line 3))
  Downloading numpy-2.4.6-cp311-cp311-manylinux_2_28_x86_64.whl (16.9 MB)
Requirement already satisfied: pip in ./lib (26.1)
Processing /wheels/packaging-26.3-py3-none-any.whl (from bokeh>=3.8.2->dlrover-nb==0.1.0)
  Preparing editable metadata (pyproject.toml): started
Installing collected packages: numpy, pandas, dlrover-nb
Successfully installed dlrover-nb-0.1.0 numpy-2.4.6 pandas-3.1.1
"""
STEPS = [
    "resolving numpy (1 packages so far)",
    "downloading numpy-2.4.6 (16.9 MB)",
    "resolving pip (2 packages so far)",
    "resolving packaging (3 packages so far)",
    "preparing editable metadata (pyproject.toml): started",
    "installing 2 of 3 packages",
    "installing 2 of 3 packages",
]


def test_each_line_of_pip_that_begins_a_step_is_the_step():
    progress = pip_progress.Progress()
    for line, step in zip(OUTPUT.splitlines(), STEPS, strict=True):
        progress.read(line)
        assert progress.text(7.2, 2) == f"    7 s  {step}"


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_one_line_and_a_file_one_for_each_state():
    for out, expected in ((io.StringIO(), "a\nb\n"), (Terminal(), "\r\x1b[Ka\r\x1b[Kb\n")):
        line = pip_progress.Line(out)
        line.show("a")
        line.end("b")
        assert out.getvalue() == expected


@pytest.mark.parametrize(("every_s", "has_ticks"), [(0.0, True), (3600.0, False)])
def test_a_tick_passes_between_lines_and_each_line_comes_once(every_s, has_ticks):
    command = [sys.executable, "-c", "for line in range(500): print(line, flush=True)"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        came = list(pip_progress._lines_and_ticks(program, every_s))
    assert [int(line) for line in came if line is not None] == list(range(500))
    assert (None in came) == has_ticks


def test_pip_that_works_leaves_its_output_in_the_log(tmp_path):
    out = io.StringIO()
    assert pip_progress.run(tmp_path / "pip.log", ["--version"], out) == 0
    assert (tmp_path / "pip.log").read_text().startswith("pip ")
    assert out.getvalue().endswith("installed (0 new packages)\n")


def test_pip_that_fails_is_quoted_and_its_exit_code_is_ours(tmp_path):
    out = io.StringIO()
    code = pip_progress.run(tmp_path / "pip.log", ["install", "--no-index", "no-such-package-of-ours"], out)
    assert code == 1
    assert f"pip ended with exit code 1; its output is in {tmp_path / 'pip.log'}" in out.getvalue()
    assert "No matching distribution found" in out.getvalue()
