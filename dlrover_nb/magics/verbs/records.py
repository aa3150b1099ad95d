"""Verbs about what is kept of jobs (logs, history, scores), and about documents of their plans."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError, InvalidValueError, NotFoundError
from dlrover_nb.core.export.exporters import EXPORTERS, GROUP
from dlrover_nb.core.extensions import names
from dlrover_nb.magics.flags import FORCE, JOB, OUTPUT_HELP, job_or
from dlrover_nb.magics.parser import number, one_of, whole
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.exports import CheckView, ExportView
    from dlrover_nb.api.imports import ImportView
    from dlrover_nb.api.job import Job
    from dlrover_nb.api.views.job_views import (
        DecisionView,
        HistoryView,
        LogsView,
        RunsView,
        ScoresView,
        TextView,
    )
    from dlrover_nb.magics.commands import Commands
    from dlrover_nb.magics.verb import Values

LOGS = (
    JOB,
    argument("node", metavar="NODE", nargs="?", help="name of a node, such as worker-0; default: all nodes"),
    argument("-n", "--lines", type=whole, metavar="N", default=100, help="number of lines"),
)
HISTORY = (JOB, argument("--run", metavar="RUN", help="id of a run; default: the newest"))
SCORE = (
    argument("job", metavar="JOB", nargs="?", help="name of a job: only its runs; default: all jobs"),
    argument("--owner", metavar="WHO", help="owner of the jobs; default: all owners"),
    argument("--days", type=number, metavar="N", help="plans of the last N days; default: all"),
)
EXPORT = (
    JOB,
    argument(
        "--kind",
        metavar="KIND",
        type=one_of("kind of export", EXPORTERS, partial(names, GROUP)),
        default="elasticjob",
        help=f"one of {', '.join(EXPORTERS)}; elasticjob-0 is the older schema",
    ),
    argument("--plan", metavar="PLAN", default="current", help="current, or a proposal's id"),
    argument("-o", "--output", metavar="FILE", help=OUTPUT_HELP),
    FORCE,
    argument(
        "--auto-scale", action="store_true", help="let the master change the plan; default: the plan is fixed"
    ),
    argument("--check", action="store_true", help="report the validation against the real schemas"),
    argument("--image", metavar="IMAGE", help="image of the pods"),
    argument("--namespace", metavar="NAMESPACE", help="namespace of the job"),
    argument(
        "--with-secrets", action="store_true", help="write secrets of the job too; default: placeholders"
    ),
)
IMPORT = (
    argument("file", metavar="FILE", help="exported YAML; it may have been edited"),
    argument("--check", action="store_true", help="only validate it against the real schemas"),
    argument("--submit", action="store_true", help="submit its job with its plan"),
    argument("--apply", action="store_true", help="scale the running job of that name to its plan"),
)


def logs(commands: Commands, *, job: str | None, node: str | None, lines: int) -> LogsView | TextView:
    """Show what nodes wrote; a job that is over is read without a cluster too."""
    try:
        cluster = commands.cluster()
    except (NotFoundError, BackendError) as gone:
        if job is None:
            raise
        from dlrover_nb.api import past  # noqa: PLC0415 - see the package

        return past.logs(job, node, n=lines, gone=gone)
    return cluster.logs(job or commands.jobs().only_name(), node, n=lines)


def history(commands: Commands, *, job: str | None, run: str | None) -> HistoryView | RunsView:
    """Show past runs, or one of them; no cluster is needed."""
    from dlrover_nb.api import past  # noqa: PLC0415 - see the package
    from dlrover_nb.api.views.job_views import RunsView  # noqa: PLC0415 - see the package

    if run is None:
        _refuse_simulated(commands, job)
    shown = past.history(job, run)
    if isinstance(shown, RunsView):
        commands.session.runs = past.ids(shown.runs)
    return shown


def _refuse_simulated(commands: Commands, job: str | None) -> None:
    """Say that no history is kept of a simulated job; `NotFoundError`."""
    cluster = commands.session.cluster
    if cluster is not None and cluster.simulated and any(each.name == job for each in cluster.jobs()):
        cluster.job(str(job)).history()


def score(commands: Commands, *, job: str | None, owner: str | None, days: float | None) -> ScoresView:
    """Show how good predictions were: of all jobs, or of one."""
    from dlrover_nb.api import past  # noqa: PLC0415 - see the package

    _refuse_simulated(commands, job)
    return past.score(owner, days, job=job)


def export(  # noqa: PLR0913 - what the plan does not say, each by its name
    commands: Commands,
    *,
    job: str | None,
    kind: str,
    plan: str,
    output: str | None,
    force: bool,
    auto_scale: bool,
    check: bool,
    image: str | None,
    namespace: str | None,
    with_secrets: bool,
) -> ExportView:
    """Write a plan as YAML for another system, or only show it."""
    return commands.job(job).export(
        kind,
        plan,
        path=output,
        force=force,
        auto_scale=auto_scale,
        check=check,
        image=image,
        namespace=namespace,
        with_secrets=with_secrets,
    )


def one_action(values: Values) -> Values:
    """Refuse more than one action of an import."""
    chosen = [f"--{name}" for name in ("check", "submit", "apply") if values[name]]
    if len(chosen) > 1:
        raise InvalidValueError(f"{' and '.join(chosen)} do not go together; give one of them")
    return values


def import_(
    commands: Commands, *, file: str, check: bool, submit: bool, apply: bool
) -> ImportView | CheckView | Job | DecisionView:
    """Read an exported file; check it, start its job, or scale the running one to its plan."""
    from dlrover_nb.api.exports import check_file  # noqa: PLC0415 - see the package
    from dlrover_nb.api.imports import import_file  # noqa: PLC0415 - as above
    from dlrover_nb.magics.submission import own_code  # noqa: PLC0415 - as above

    cluster = commands.cluster(start=submit) if submit or apply else commands.cluster_if_any()
    if check:
        return check_file(file, cluster and cluster.core)
    shown = import_file(file) if cluster is None else cluster.import_file(file)
    if submit:
        spec = shown.imported.job
        job = shown.submit(**(own_code(spec, commands.namespace) if spec else {}))
        commands.session.jobs[job.name] = True
        return job
    return commands.decided(shown.apply()) if apply else shown


VERBS = (
    Verb(
        "logs",
        "show what nodes wrote, the newest last",
        logs,
        LOGS,
        "quick-start worker-0 -n 20",
        (job_or("node", re.compile(r"(worker|ps)-\d+")),),
        under="show",
    ),
    Verb(
        "history",
        "show past runs, or one of them",
        history,
        HISTORY,
        "quick-start",
        (job_or("run", re.compile(r".+@[\d.]+")),),
    ),
    Verb("score", "show how good predictions were", score, SCORE, "quick-start --days 30", under="history"),
    Verb(
        "export",
        "write a plan as YAML: ElasticJob, ScalePlan, TFJob, JobSet or others",
        export,
        EXPORT,
        "quick-start -o elasticjob.yaml",
    ),
    Verb(
        "import",
        "read an exported file: show, check, start or apply it",
        import_,
        IMPORT,
        "elasticjob.yaml",
        (one_action,),
    ),
)
