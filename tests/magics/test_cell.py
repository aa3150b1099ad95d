"""A `%%dlrover submit` cell in YAML or in Python: which it is, what runs, and how mistakes look."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from IPython.core.error import UsageError
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import dump_job
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.magics.cell import run_python, yaml_mapping

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster

MODEL = "class Net(Base):\n    def forward(self, x):\n        return x\n"


@for_each(
    ("cell", "expected"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ("name: x\nepochs: 3\n", {"name": "x", "epochs": 3}),
        ("name: x", {"name": "x"}),
        ("{name: x}", {"name": "x"}),
        ('{"name": "x"}', {"name": "x"}),
        ("batchsize: 1", {"batchsize": 1}),
        ("checkpoint-url: x", {"checkpoint-url": "x"}),
    ],
)
def test_a_mapping_under_plain_words_is_yaml(cell: str, expected: dict[str, object]) -> None:
    assert yaml_mapping(cell) == expected


@for_each(
    "cell",
    [
        MODEL,
        "class Net(Base):\n    x: int\n",
        "try:\n    x\nfinally:\n    y\n",
        "JobSpec('x')",
        "spec = JobSpec('x')\nspec\n",
        "x: int = 3\nJobSpec('x')",
        "import torch",
        "name = 'x'\ndict(name=name)",
        "dict(name='x')",
        "['a']",
        "'x'",
    ],
)
def test_what_only_python_means_is_python(cell: str) -> None:
    assert yaml_mapping(cell) is None


@for_each(
    ("cell", "message"),
    [
        ("name: x\nplan: {worker: [", "malformed YAML in line 2, column 17: .*, near `plan: {worker: \\["),
        ("name: x\n  epochs: 3", "malformed YAML in line 2, column 9: .*, near `epochs: 3`"),
        ("name: x\nname: y", "malformed YAML in line 2, column 1: duplicate key 'name', near `name: y`"),
        ("# my job\nname: 'x\n", "malformed YAML in line 3, column 1: .*, near `name: 'x`"),
        (
            "name ctr\nepochs",
            "a job file holds keys and values such as `name: my-job`, got 'name ctr epochs'",
        ),
        ("x = = 3", "malformed Python in line 1, column 5: invalid syntax, near `x = = 3`"),
        (
            "import os\n\nos.getcwd(\n",
            "malformed Python in line 3, column 10: .* never closed, near `os.getcwd\\(",
        ),
        (
            "def f():\nreturn 1",
            "malformed Python in line 2, column 1: expected an indented block .*`return 1`",
        ),
        (
            "x = 1\nreturn x",
            "malformed Python in line 2, column 1: 'return' outside function, near `return x`",
        ),
        ("x = 1\0", "null bytes"),
    ],
)
def test_what_is_neither_is_refused_with_line_column_and_text(cell: str, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message) as caught:
        yaml_mapping(cell)
    assert "\n" not in str(caught.value)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=60))
def test_any_cell_is_yaml_python_or_one_refusal(cell: str) -> None:
    try:
        content = yaml_mapping(cell)
    except InvalidValueError:
        return
    assert content is None or isinstance(content, dict)


def test_every_job_file_that_we_write_is_yaml() -> None:
    assert yaml_mapping(dump_job(JobSpec("x")))["name"] == "x"  # type: ignore[index]


def test_python_gives_its_last_expression_and_leaves_its_names() -> None:
    namespace: dict[str, Any] = {"n": 2}
    assert run_python("m = n + 1\nm * 2", namespace) == 6
    assert namespace["m"] == 3
    assert run_python("m = 7", namespace) is None
    assert run_python("", namespace) is None


def test_the_traceback_of_a_cell_shows_its_lines() -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        run_python("a = 1\nb = a / 0  # the culprit\n", {})
    assert "b = a / 0  # the culprit" in "".join(traceback.format_exception(caught.value))


# through the magic


@pytest.fixture
def connected(shell: InteractiveShell) -> InteractiveShell:
    shell.run_line_magic("dlrover", "connect ray")
    return shell


def test_a_job_built_in_python_is_submitted_and_flags_win(
    connected: InteractiveShell, memory: MemoryCluster
) -> None:
    cell = "import dlrover_nb\nhow_often = 2\ndlrover_nb.JobSpec('built', n_epoch=how_often)\n"
    connected.run_cell_magic("dlrover", "submit", cell)
    assert memory.links["built"].state.spec.n_epoch == 2
    assert connected.user_ns["how_often"] == 2
    connected.run_cell_magic("dlrover", "submit twice --epochs 5", "dict(name='built', epochs=how_often)")
    assert memory.links["twice"].state.spec.n_epoch == 5


def test_what_the_cell_defines_is_named_by_flags(connected: InteractiveShell, memory: MemoryCluster) -> None:
    cell = "class Net:\n    pass\n\ndef rows(start):\n    yield from ()\n"
    connected.run_cell_magic("dlrover", "submit mine --model Net --format own --data rows", cell)
    assert memory.own == [(connected.user_ns["Net"], connected.user_ns["rows"])]


@for_each(
    ("line", "cell", "message"),
    [
        ("submit", "n = 1", "the job has no name; write submit NAME"),
        ("submit", "import dlrover_nb\ndlrover_nb.JobSpec('x', n_epoch=0)", "epoch"),
        (
            "submit x --model Nett",
            "class Net: pass",
            "no model 'Nett' here, built in or defined by you; did you mean Net?",
        ),
        ("submit x", "n = = 1", "malformed Python in line 1"),
    ],
)
def test_a_mistake_in_a_cell_starts_nothing(
    connected: InteractiveShell, memory: MemoryCluster, line: str, cell: str, message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        connected.run_cell_magic("dlrover", line, cell)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert memory.links == {}


def test_an_exception_of_the_users_code_stays_theirs(
    connected: InteractiveShell, memory: MemoryCluster
) -> None:
    with pytest.raises(ZeroDivisionError):
        connected.run_cell_magic("dlrover", "submit x", "print(1 / 0)")
    assert memory.links == {}


def test_no_code_runs_where_no_job_can(shell: InteractiveShell) -> None:
    with pytest.raises(UsageError, match="not connected"):
        shell.run_cell_magic("dlrover", "submit x", "ran = dict(name='x')")
    assert "ran" not in shell.user_ns
