"""What programs that run notebooks, such as nbclient and papermill, get of a magic."""

from __future__ import annotations

import os

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

REASON = "unknown verb 'stauts'; did you mean show?; see %dlrover help"


def executed(tmp_path, monkeypatch, *sources):
    """Run cells in a kernel of their own; return the notebook."""
    monkeypatch.setenv("HOME", str(tmp_path))
    cells = [nbformat.v4.new_code_cell(source) for source in ("%load_ext dlrover_nb", *sources)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    client = NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    try:
        client.execute(env=dict(os.environ))
    except CellExecutionError as error:
        return notebook, error
    return notebook, None


@pytest.mark.more
def test_a_cell_that_fails_says_its_reason_to_the_program_that_runs_it(tmp_path, monkeypatch):
    notebook, error = executed(tmp_path, monkeypatch, "%dlrover stauts")
    assert REASON in str(error)
    assert (error.ename, error.evalue) == ("UsageError", REASON)
    (output,) = notebook.cells[-1].outputs  # by an error among outputs papermill knows why a cell failed
    assert (output.output_type, output.ename, output.evalue) == ("error", "UsageError", REASON)
    assert output.traceback == [f"UsageError: {REASON}"]


WAITS = """
import time
from dlrover_nb.magics.verb import Verb
from dlrover_nb.magics.shell import loaded
from dlrover_nb.api.views.job_views import Note

def slow(self, call, cell=None, run=type(loaded(get_ipython()).commands).run):
    with self.waiting("what takes long"):
        time.sleep(1.5)
        return run(self, call, cell)

type(loaded(get_ipython()).commands).run = slow
"""


@pytest.mark.more
@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ("%dlrover help", ["Help"]),
        ("# all verbs\nhelp_ = %dlrover help", []),
        ("%dlrover help;", []),
    ],
)
def test_a_magic_that_waited_leaves_no_empty_output(tmp_path, monkeypatch, source, texts):
    notebook, error = executed(tmp_path, monkeypatch, WAITS, source)
    assert error is None
    said = [output.data["text/plain"].split("\n")[0] for output in notebook.cells[-1].outputs]
    assert said == texts


@pytest.mark.more
def test_what_a_cell_printed_before_a_magic_stays(tmp_path, monkeypatch):
    notebook, error = executed(tmp_path, monkeypatch, WAITS, "print('before')\n%dlrover help")
    assert error is None
    first, *others = notebook.cells[-1].outputs
    assert first.text == "before\n"
    assert all(output.get("data", {}) != {"text/plain": "", "text/html": ""} for output in others)
