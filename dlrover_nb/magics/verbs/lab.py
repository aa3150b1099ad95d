"""The verb `lab`: policies side by side on past jobs, a trace, or jobs by description."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.magics.parser import columns, number, whole
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.api.views.lab_view import LabView
    from dlrover_nb.magics.commands import Commands

LAB = (
    argument("file", metavar="FILE", nargs="?", help="a lab file; default: a hundred drawn jobs"),
    argument(
        "--contenders",
        type=columns,
        metavar="A,B",
        help="policies to compare, or functions of the notebook; default: those of the file",
    ),
    argument(
        "--history",
        type=number,
        metavar="DAYS",
        dest="history_days",
        help="replay your own runs of so many days; default: none",
    ),
    argument("--trace", metavar="CSV", help="replay a trace; default: none"),
    argument("--jobs", type=whole, metavar="N", help="how many jobs; default: as the file says, or 100"),
    argument("--days", type=number, metavar="N", help="in how many days; default: as the file says, or 1"),
    argument(
        "--seeds", type=whole, metavar="N", help="how many runs of each; default: as the file says, or 3"
    ),
)


def lab(  # noqa: PLR0913 - what is changed of a lab file, each by its name
    commands: Commands,
    *,
    file: str | None,
    contenders: list[str] | None,
    history_days: float | None,
    trace: str | None,
    jobs: int | None,
    days: float | None,
    seeds: int | None,
    cell: str | None,
) -> LabView:
    """Run a lab: of a file, of a cell, or with the defaults; it needs no cluster."""
    from dlrover_nb.api.policy_lab import lab as run  # noqa: PLC0415 - see the package
    from dlrover_nb.core.errors import InvalidValueError  # noqa: PLC0415 - as above
    from dlrover_nb.core.jobfile import load_mapping  # noqa: PLC0415 - as above

    if file is not None and cell is not None:
        raise InvalidValueError(f"a lab is a file or a cell, got {file} and a cell; give one of them")
    source = file if cell is None else load_mapping(cell)
    named = [_function(commands, name) or name for name in contenders or ()]
    return run(
        source,
        contenders=named,
        history_days=history_days,
        trace=trace,
        jobs=jobs,
        days=days,
        seeds=seeds,
    )


def _function(commands: Commands, name: str) -> Callable[..., object] | None:
    """Return a function of the user's notebook by its name; None: it has none, or this is a shell."""
    value = commands.namespace.get(name)
    return value if callable(value) else None


VERBS = (
    Verb(
        "lab",
        "compare policies on past jobs, a trace or drawn jobs",
        lab,
        LAB,
        "--history 30 --contenders fixed-plan,optimus,throughput-model",
        takes_cell=True,
    ),
)
