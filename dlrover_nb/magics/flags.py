"""The arguments that verbs share, and how those that belong together are interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.api.inputs.sizes import Sizes, check_given
from dlrover_nb.magics.parser import number, whole
from dlrover_nb.magics.verb import argument

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from dlrover_nb.magics.verb import Argument, Values

FlagTable = tuple[tuple[str, str, "Callable[[str], object]", str, str], ...]  # flag, key, type, metavar, help

SIZE_FLAGS: FlagTable = (
    ("--workers", "plan.worker.count", whole, "N", "number of workers"),
    ("--ps", "plan.ps.count", whole, "N", "number of parameter servers"),
    ("--worker-cpu", "plan.worker.cpu", number, "CORES", "cores of each worker"),
    ("--ps-cpu", "plan.ps.cpu", number, "CORES", "cores of each parameter server"),
    ("--worker-memory", "plan.worker.memory_mib", whole, "MIB", "memory of each worker"),
    ("--ps-memory", "plan.ps.memory_mib", whole, "MIB", "memory of each parameter server"),
)
_SIZES = {  # name of the parsed argument -> part of `Sizes`
    "workers": "workers",
    "ps": "ps",
    "worker_cpu": "worker_cpu",
    "ps_cpu": "ps_cpu",
    "worker_memory": "worker_memory_mib",
    "ps_memory": "ps_memory_mib",
}


def flags_of(table: FlagTable, *, by_path: bool) -> tuple[Argument, ...]:
    """Return the arguments of a table of flags; `by_path` stores each under its path in a job file."""
    return tuple(
        argument(flag, type=kind, metavar=metavar, help=text, **({"dest": path} if by_path else {}))
        for flag, path, kind, metavar, text in table
    )


JOB = argument("job", metavar="JOB", nargs="?", help="name of the job; optional while only one runs")
PROPOSAL = argument("proposal", metavar="PROPOSAL", nargs="?", help="id of the proposal, such as p3")
ANSWERED = argument(
    "proposal", metavar="ID", nargs="?", help="id of the proposal or action, such as p3 or m1"
)
WHY = argument("--why", metavar="TEXT", default="", help="reason, stored with the decision")
SIZES = flags_of(SIZE_FLAGS, by_path=False)
OUTPUT_HELP = "file to write"
FORCE = argument("--force", action="store_true", help="overwrite an existing file")
OUTPUT = (argument("-o", "--output", metavar="FILE", required=True, help=OUTPUT_HELP), FORCE)


def job_or(other: str, pattern: re.Pattern[str]) -> Callable[[Values], Values]:
    """Return a function that reads a single word as `other`, not as a job's name, where it looks like one."""

    def interpret(values: Values) -> Values:
        job = values["job"]
        if values[other] is None and isinstance(job, str) and pattern.fullmatch(job):
            return {**values, "job": None, other: job}
        return values

    return interpret


def collect_sizes(values: Values) -> Values:
    """Collect the parts of a plan in ``sizes``; at least one must be given, or ``--clear``."""
    parts = {part: values[name] for name, part in _SIZES.items()}
    given = Sizes(**parts)  # type: ignore[arg-type]  # each has its flag's type
    if not values.get("clear"):
        check_given(given, (flag for flag, *_ in SIZE_FLAGS))
    return {**{name: value for name, value in values.items() if name not in _SIZES}, "sizes": given}
