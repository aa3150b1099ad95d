"""A variable of the notebook as a job's model or data; installed code by its name."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from IPython.core.error import UsageError
from support.cases import for_each

from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.commands import Commands

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell
    from support.jobs.cluster_double import MemoryCluster


class Net:
    """Stands for a module: nothing here looks into it."""


@pytest.fixture
def typing(shell: InteractiveShell) -> InteractiveShell:
    shell.run_line_magic("dlrover", "connect")
    shell.user_ns["MyNet"], shell.user_ns["clicks"] = Net, [1, 2]
    return shell


def test_variables_are_submitted_by_their_names(typing: InteractiveShell, memory: MemoryCluster) -> None:
    typing.run_line_magic("dlrover", "submit a --model MyNet")
    typing.run_line_magic("dlrover", "submit b --format own --data clicks")
    cell = "model: {name: MyNet, embedding_dim: 4}\ndata: {format: own, path: clicks}"
    typing.run_cell_magic("dlrover", "submit c", cell)
    assert memory.own == [(Net, None), (None, [1, 2]), (Net, [1, 2])]
    assert memory.links["c"].state.spec.model.embedding_dim == 4


def test_installed_code_is_named(typing: InteractiveShell, memory: MemoryCluster) -> None:
    typing.run_line_magic("dlrover", "submit a --model package.nets:Net --data package.rows:Rows")
    spec = memory.links["a"].state.spec
    assert (spec.model.name, spec.model.code) == ("custom", "package.nets:Net")
    assert (spec.data.format, spec.data.path) == (DataFormat.OWN, "package.rows:Rows")
    assert memory.own == [(None, None)]


@for_each(
    ("line", "message"),
    [
        (
            "submit a --model MyNett",
            "no model 'MyNett' here, built in or defined by you; did you mean MyNet?",
        ),
        ("submit a --model xdeepfn", "did you mean xdeepfm?"),
        (
            "submit a --data click --format own",
            "no data 'click' here, built in or defined by you; did you mean clicks?",
        ),
        ("submit a --data clicks", "data.format is missing"),
    ],
)
def test_a_name_that_is_nothing_is_refused(typing: InteractiveShell, line: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        typing.run_line_magic("dlrover", line)
    assert message in str(caught.value)


def test_the_command_line_knows_no_variables(memory: MemoryCluster) -> None:
    commands = Commands(memory.connect, command="dlrover-nb", auto_connect=True)
    with pytest.raises(LookupError, match=r"no model 'MyNet' here"):
        commands.run(GRAMMAR.parse_line("submit a --model MyNet"))
