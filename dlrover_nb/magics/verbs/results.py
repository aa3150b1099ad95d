"""Verbs that give what jobs made (report, predictions), and those about all jobs together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.connect.kinds import kind_of
from dlrover_nb.core.errors import DlroverError
from dlrover_nb.magics.flags import JOB, OUTPUT
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.views.job_views import Note
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.widgets.clusters.many import ManyJobs

PREDICT = (
    argument("job", metavar="JOB", help="name of a job, which may have ended, or its run folder"),
    argument("rows", metavar="ROWS", help="file with the columns of the training data"),
    *OUTPUT,
)
DASH = (argument("job", metavar="JOB", nargs="?", help="name of the job that is open at first"),)
SHUTDOWN = (argument("--force", action="store_true", help="stop jobs that still run"),)


def report(commands: Commands, *, job: str | None, output: str, force: bool) -> Note:
    """Write a job's report."""
    return commands.job(job).report(output, force=force)


def predict(commands: Commands, *, job: str, rows: str, output: str, force: bool) -> Note:
    """Score the rows of a file; a job that ran on this machine needs no cluster for that."""
    from dlrover_nb.api.views.job_views import Note  # noqa: PLC0415 - see the package
    from dlrover_nb.core.client.trained_model import load_model, write_scores  # noqa: PLC0415 - it loads torch

    scores = load_model(far_handle(commands, job) or job).predict(rows)
    path = write_scores(output, scores, force=force)
    text = f"probabilities of {len(scores):,} rows, mean {scores.mean():.4f}, written to {path}"
    return Note(f"Prediction of {job}", text, str(path))


def far_handle(commands: Commands, name: str) -> JobHandle | None:
    """Return the job where only its own nodes can read its files; None: to be found on this machine."""
    if commands.session.cluster is None and kind_of(commands.target().kind).name != "kubernetes":
        return None
    try:
        handle = commands.cluster().job(name).handle
    except DlroverError:  # it may be the run folder of a job that ran here
        return None
    return handle if handle.is_far else None


def dash(commands: Commands, *, job: str | None) -> ManyJobs:
    """Follow all jobs live, with one of them open where it is named."""
    shown = commands.cluster().dash(job)
    commands.session.shown.clear()  # from now on the live view shows what is open
    return shown


def shutdown(commands: Commands, *, force: bool) -> Note:
    """End the cluster if it was started here, else disconnect; live views keep their last state."""
    return commands.shutdown(force=force)


VERBS = (
    Verb(
        "report", "write a self-contained HTML report", report, (JOB, *OUTPUT), "quick-start -o report.html"
    ),
    Verb(
        "predict",
        "score a file with a job's last checkpoint",
        predict,
        PREDICT,
        "quick-start new.parquet -o scores.parquet",
    ),
    Verb("dash", "follow all jobs live, and open one of them", dash, DASH, "quick-start"),
    Verb("shutdown", "end the cluster that was started here", shutdown, SHUTDOWN),
)
