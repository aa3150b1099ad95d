"""Verbs that find a job again, wait for it, end it and remove it, and decide about its shards."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.client.until import Until
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.magics.flags import JOB, WHY
from dlrover_nb.magics.parser import number, one_of, whole
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views.job_views import JobsView, Note, ShardsView, StatusView
    from dlrover_nb.api.views.unmanaged_view import UnmanagedJobView
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

WAIT = (
    JOB,
    argument("--timeout", type=number, metavar="SECONDS", help="stop waiting after this time"),
    argument(
        "--for",
        dest="until",
        metavar="WHAT",
        type=one_of("thing to wait for", Until),
        default=Until.END,
        help="end (of the job), proposal, mitigation (against stragglers), or outcome (of the last change)",
    ),
)
DELETE = (
    argument("job", metavar="JOB", help="name of the job"),
    argument("--force", action="store_true", help="stop the job first if it runs"),
)
SHARDS = (
    JOB,
    argument(
        "--retry", type=whole, metavar="SHARD", help="train this shard again, after its rows were repaired"
    ),
    argument("--skip", type=whole, metavar="SHARD", help="continue without this shard"),
    WHY,
)


def attach(commands: Commands, *, job: str | None) -> Job | JobsView | UnmanagedJobView:
    """Find a job again, or all of them."""
    jobs = commands.jobs()
    return commands.any_job(job) if job or len(jobs.candidates) < 2 else jobs


def wait(commands: Commands, *, job: str | None, timeout: float | None, until: str) -> StatusView:
    """Block until something has come about, by default the job's end; an interrupt leaves it running."""
    return commands.wait(commands.job(job), timeout, until)


def stop(commands: Commands, *, job: str | None, why: str) -> StatusView:
    """Stop a job."""
    handle = commands.job(job)
    shown = handle.stop(why=why)
    commands.session.jobs[handle.name] = not shown.phase.is_final
    return shown


def finish(commands: Commands, *, job: str | None, why: str) -> StatusView:
    """Let a job succeed with what it has trained."""
    return commands.job(job).finish(why=why)


def delete(commands: Commands, *, job: str, force: bool) -> Note:
    """Remove a job."""
    done = commands.cluster().delete(job, force=force)
    commands.session.forget(job)
    return done


def one_shard(values: Values) -> Values:
    """Refuse two decisions at a time."""
    if values["retry"] is not None and values["skip"] is not None:
        raise InvalidValueError("--skip is not allowed with --retry; decide about one shard at a time")
    return values


def shards(
    commands: Commands, *, job: str | None, retry: int | None, skip: int | None, why: str
) -> ShardsView:
    """Show the account of rows, after a decision about a shard where one is named."""
    handle = commands.job(job)
    if retry is not None:
        shown = handle.retry_shard(retry, why=why)
    elif skip is not None:
        shown = handle.skip_shard(skip, why=why)
    else:
        shown = handle.shards()
    commands.session.note_names(shown.snapshot)
    return shown


VERBS = (
    Verb(
        "attach",
        "find a job again from a new kernel; without a name, all of them",
        attach,
        (JOB,),
        "quick-start",
    ),
    Verb(
        "wait",
        "block until a job has ended, proposes a plan, or has measured its last change",
        wait,
        WAIT,
        "quick-start --for proposal --timeout 60",
        exits_by_phase=True,
        under="show",
    ),
    Verb(
        "finish",
        "train no more rows: evaluate the model, and let the job succeed",
        finish,
        (JOB, WHY),
        'quick-start --why "good enough"',
    ),
    Verb(
        "stop",
        "stop a job; its checkpoints and history are kept",
        stop,
        (JOB, WHY),
        'quick-start --why "good enough"',
    ),
    Verb(
        "delete",
        "remove a job and its files; its history is kept",
        delete,
        DELETE,
        "quick-start",
        under="end",
    ),
    Verb(
        "shards",
        "show the state of all rows, and decide about shards in quarantine",
        shards,
        SHARDS,
        'quick-start --skip 7 --why "damaged rows"',
        (one_shard,),
    ),
)
