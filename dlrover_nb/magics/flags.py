"""The arguments that verbs share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.magics.verb import argument

if TYPE_CHECKING:
    import re
    from collections.abc import Callable

    from dlrover_nb.magics.verb import Argument, Values

FlagTable = tuple[tuple[str, str, "Callable[[str], object]", str, str], ...]  # flag, key, type, metavar, help


def flags_of(table: FlagTable) -> tuple[Argument, ...]:
    """Return the arguments of a table of flags, each stored under its path in a job file."""
    return tuple(
        argument(flag, type=kind, metavar=metavar, help=text, dest=path)
        for flag, path, kind, metavar, text in table
    )


JOB = argument("job", metavar="JOB", nargs="?", help="name of the job; optional while only one runs")
PROPOSAL = argument("proposal", metavar="PROPOSAL", nargs="?", help="id of the proposal, such as p3")
WHY = argument("--why", metavar="TEXT", default="", help="reason, stored with the decision")
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
