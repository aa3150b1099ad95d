"""The verb `audit`: list who asked for what, verify that the list is unchanged, export it."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.flags import FORCE, OUTPUT_HELP
from dlrover_nb.magics.parser import one_of, whole
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.audit import AuditView
    from dlrover_nb.api.views.job_views import Note
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

FORMATS = ("jsonl", "csv")
N_LISTED = 50


class What(StrEnum):
    """What is done with the audit."""

    LIST = "list"
    VERIFY = "verify"
    EXPORT = "export"


AUDIT = (
    argument(
        "what",
        metavar="WHAT",
        nargs="?",
        type=one_of("part of audit", What),
        default=str(What.LIST),
        help="list, verify or export",
    ),
    argument("--job", metavar="JOB", help="list, export: commands about this job; default: all"),
    argument(
        "--since", metavar="WHEN", help="list, export: from then on, as 24h or 2026-05-01; default: all"
    ),
    argument("-n", "--lines", type=whole, metavar="N", help=f"list: how many; default: {N_LISTED}"),
    argument("--anchor", metavar="HASH", help="verify: a hash that was written down; default: none"),
    argument(
        "--format",
        metavar="FORMAT",
        type=one_of("format", FORMATS),
        help="export: jsonl or csv; default: jsonl",
    ),
    argument("-o", "--output", metavar="FILE", help=f"export: {OUTPUT_HELP}"),
    FORCE,
)
_OF = {
    What.LIST: ("job", "since", "lines"),
    What.VERIFY: ("anchor",),
    What.EXPORT: ("job", "since", "format", "output", "force"),
}
_FLAGS = {name: f"--{name}" for names in _OF.values() for name in names}


def one_thing(values: Values) -> Values:
    """Refuse flags that belong to another part of the verb."""
    what = What(str(values["what"]))
    for name, flag in _FLAGS.items():
        if values[name] not in (None, False) and name not in _OF[what]:
            of = next(each for each, names in _OF.items() if name in names)
            raise InvalidValueError(
                f"{flag} belongs to `--audit {of}`, got it with `--audit {what}`; leave it out"
            )
    if what is What.EXPORT and values["output"] is None:
        raise InvalidValueError("--audit export needs a file to write, got none; name one with -o FILE")
    return values


def audit(  # noqa: PLR0913 - the flags of three parts, each by its name
    _: Commands,
    *,
    what: str,
    job: str | None,
    since: str | None,
    lines: int | None,
    anchor: str | None,
    format: str | None,  # noqa: A002 - named as its flag
    output: str | None,
    force: bool,
) -> AuditView | Note:
    """Show, verify or export the audit of this machine or team; no cluster is needed."""
    from dlrover_nb.api import audit as api  # noqa: PLC0415 - see the package

    match What(what):
        case What.LIST:
            return api.audit(job, since=since, n=N_LISTED if lines is None else lines)
        case What.VERIFY:
            return api.verify(anchor)
        case What.EXPORT:
            assert output is not None
            return api.export(output, job=job, since=since, form=format or FORMATS[0], force=force)


VERBS = (
    Verb(
        "audit",
        "list who asked for what, verify that it was not changed, export it",
        audit,
        AUDIT,
        "list --job quick-start --since 24h",
        (one_thing,),
    ),
)
