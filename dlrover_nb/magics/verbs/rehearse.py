"""The verb `rehearse`: what more workers cost in quality, of a job that ran, runs, or is only a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.magics.flags import flags_of
from dlrover_nb.magics.parser import columns, number, setting, whole, widths
from dlrover_nb.magics.verb import Verb, argument
from dlrover_nb.magics.verbs.results import far_handle
from dlrover_nb.magics.verbs.start import SUBMIT_FLAGS, name_and_file

if TYPE_CHECKING:
    from dlrover_nb.api.views.rehearsal_view import RehearsalView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

KEYS = ("batch_size", "global_batch", "seed", "overlap")  # beside those of data and model
FLAGS = tuple(row for row in SUBMIT_FLAGS if row[1] in KEYS or row[1].partition(".")[0] in {"data", "model"})
REHEARSE = (
    argument("job", metavar="JOB", nargs="?", help="name of a job that runs or ran, or a job file"),
    argument(
        "--staleness", action="store_true", help="measure what older gradients cost: so far the one kind"
    ),
    argument("--file", metavar="FILE", help="job file (YAML); flags override it"),
    *flags_of(FLAGS),
    argument(
        "--set", type=setting, action="append", default=[], metavar="KEY=VALUE", help="any key of a job file"
    ),
    argument("--workers", type=widths, metavar="A,B", help="whose delay is imposed; default: 1,2,4,8,16,32"),
    argument("--rows", type=whole, metavar="N", help="training rows of the sample; default: 50,000"),
    argument("--seeds", type=whole, metavar="N", help="runs of each number of workers; default: 5"),
    argument(
        "--variation", type=number, metavar="X", help="of the times of workers' steps; default: 0, equal ones"
    ),
    argument("--passes", type=whole, metavar="N", help="passes over the sample; default: 1"),
    argument(
        "--ways",
        type=columns,
        metavar="A,B",
        help="to apply gradients: asp, normalised, gba; default: the job's",
    ),
)


def settings_of(values: Values) -> Values:
    """Collect the flags that are keys of a job file in ``settings``, as (path, value), and name the file."""
    given = [(path, values[path]) for _, path, *_ in FLAGS if values[path] is not None]
    of_set = values["set"]
    assert isinstance(of_set, list)
    job, file = name_and_file(values["job"], values["file"])
    names = ("workers", "rows", "seeds", "passes", "ways", "variation")
    return {"job": job, "file": file, "settings": (*of_set, *given), "options": {k: values[k] for k in names}}


def rehearse(
    commands: Commands,
    *,
    job: str | None,
    file: str | None,
    settings: tuple[tuple[str, object], ...],
    options: dict[str, object],
    cell: str | None,
) -> RehearsalView:
    """Rehearse a job: of a file, a cell or flags, or one that a cluster or this machine knows."""
    from dlrover_nb.api import rehearsals  # noqa: PLC0415 - see the package
    from dlrover_nb.magics.submission import own_code, spec_of  # noqa: PLC0415 - as above

    if file is not None or (cell is not None and cell.strip()):
        name = (("name", job),) if job is not None else ()
        spec = spec_of(file, (*settings, *name), cell, commands.namespace)
        return rehearsals.rehearse(spec, **own_code(spec, commands.namespace), **options)  # type: ignore[arg-type]  # of these types by name
    if job is None and not settings:
        return commands.job(None).rehearse(**options)  # type: ignore[arg-type]  # as above
    handle = None if job is None else far_handle(commands, job)
    if handle is not None and not settings:
        return commands.job(job).rehearse(**options)  # type: ignore[arg-type]  # as above
    source = job if handle is None else handle.snapshot().spec
    return rehearsals.rehearse(source, **options, **dict(settings))  # type: ignore[arg-type]  # as above


VERBS = (
    Verb(
        "rehearse",
        "measure what the staleness of more workers costs in quality",
        rehearse,
        REHEARSE,
        "--staleness quick-start --workers 1,4,16",
        (settings_of,),
        takes_cell=True,
    ),
)
