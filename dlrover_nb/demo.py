"""The demonstration, end to end, on this machine: `dlrover-nb submit --demo`.

Nothing is simulated: it starts a local Ray head and a job of real processes on real rows. Proposals come
from the model that is fitted during training; each is accepted after a few seconds on the screen. Later a
parameter server is added and removed while training continues. At the end it compares predicted with measured
throughput, shows the pauses, and writes the job as an ElasticJob beside a self-contained HTML report.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.table import Table

from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.percents import percent, signed_percent
from dlrover_nb.core.basics.waits import until_ready
from dlrover_nb.core.commands.requests import Accept, Scale
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError, DlroverError, JobFailedError
from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.nodes import Options
from dlrover_nb.core.export.provenance import provenance_of
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.yamltext import to_yaml
from dlrover_nb.terminal import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.jobs.status import host_words
from dlrover_nb.widgets.past.html_report import write_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from rich.console import Console

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

    Draw = Callable[[JobSnapshot, Sequence[float]], None]

THINK_S = 4.0  # how long a proposal is shown before it is accepted
POLL_S = 0.5
LIMIT_S = 420.0  # then a busy machine has shown what it can, and the job is stopped
LINE_S = 10.0  # between two lines on its progress, where nothing can be redrawn
N_EPOCH = 50
LEAST_WIDTH = 120  # of lines in a file or a pipe, which have no width of their own
MOVES = ((0.5, 2), (0.75, 1))  # from this share of the samples on: number of parameter servers


def demo_job() -> JobSpec:
    """Return the demo's job: Wide&Deep on the Census-Income rows that ship with the package."""
    return JobSpec(
        name="demo",
        owner="demo",
        plan=ResourcePlan(worker=RolePlan(1, 0.5, 1024), ps=RolePlan(1, 0.25, 512)),
        # steps that a 2-core machine can hold, and that change counts before they replace nodes
        bounds=PlanBounds(max_workers=3, max_ps=2, worker_cpus=(0.5,), ps_cpus=(0.25,)),
        mode=Mode.SUGGEST,
        n_epoch=N_EPOCH,
    )


def run_demo(out: Path, console: Console) -> JobSnapshot:
    """Run the demo on a terminal, and write its results to the folder `out`.

    Raises
    ------
    JobFailedError
        When the job fails; its report is written all the same.
    """
    out.mkdir(parents=True, exist_ok=True)
    if not console.is_terminal:
        console.width = max(console.width, LEAST_WIDTH)
    console.print("starting a local Ray on this machine (about ten seconds) ...")
    cluster = connect("ray")
    console.print(cluster.description)
    with until_ready() as ready:
        ready()  # from here on the drawing says it
        try:
            return _demonstrated(cluster, console, out)
        finally:
            _leave(cluster, console)


def _demonstrated(cluster: Cluster, console: Console, out: Path) -> JobSnapshot:
    job = cluster.submit(demo_job())
    snapshot = _Watch(job, console).until_end()
    _conclude(console, job, snapshot, out)
    if snapshot.phase is JobPhase.FAILED:
        raise JobFailedError(f"the demo's job failed: {snapshot.message or 'its logs may tell why'}")
    return snapshot


def _leave(cluster: Cluster, console: Console) -> None:
    """Stop the local Ray, unless other jobs run on it."""
    try:
        others = [j.name for j in cluster.jobs() if j.live and j.name != "demo" and not j.phase.is_final]
        console.print(
            f"Ray is left running for {and_list(others)}" if others else cluster.shutdown(force=True)
        )
    except BackendError as error:
        console.print(f"Ray had already stopped: {error}")


@dataclass
class _Watch:
    """Redraws the job each half second, and accepts each proposal a few seconds after it is shown."""

    job: JobHandle
    console: Console
    rates: list[float] = field(default_factory=list)
    seen_at_s: dict[str, float] = field(default_factory=dict)
    cursor: int = 0
    n_moved: int = 0

    def until_end(self) -> JobSnapshot:
        """Return the job as it ended, by itself or stopped after `LIMIT_S` seconds."""
        end_s, is_stopped = time.monotonic() + LIMIT_S, False
        with _drawing(self.console) as draw:
            while True:
                snapshot = self._fetch()
                draw(snapshot, self.rates)
                if snapshot.phase.is_final:
                    return snapshot
                if time.monotonic() > end_s and not is_stopped:
                    is_stopped = True
                    why = "this machine is too busy for all of its rows"
                    self.console.print(f"stopping the job after {LIMIT_S:g} s: {why}")
                    self.job.stop()
                self._accept_when_seen(snapshot)
                self._move_when_due(snapshot)
                time.sleep(POLL_S)

    def _fetch(self) -> JobSnapshot:
        chunk = self.job.series(self.cursor)
        self.cursor = chunk.cursor
        self.rates += chunk.job["samples_per_s"]
        return self.job.snapshot()

    def _accept_when_seen(self, snapshot: JobSnapshot) -> None:
        proposal = snapshot.open_proposal
        if proposal is None:
            return
        seen_at_s = self.seen_at_s.setdefault(proposal.id, time.monotonic())
        if time.monotonic() - seen_at_s < THINK_S:
            return
        try:
            self.job.decide(Accept(proposal.id, why="the demonstration accepts each proposal"))
        except DlroverError as error:  # superseded in the meantime, or the job has just ended
            self.console.print(f"{proposal.id}: {error}")

    def _move_when_due(self, snapshot: JobSnapshot) -> None:
        """Change the number of parameter servers by a manual decision."""
        if self.n_moved == len(MOVES) or snapshot.running is None or snapshot.open_proposal is not None:
            return
        share, n_ps = MOVES[self.n_moved]
        if snapshot.train.n_sample_done < share * snapshot.train.n_sample_total:
            return
        self.n_moved += 1
        plan = replace(snapshot.running, ps=replace(snapshot.running.ps, count=n_ps))
        if plan == snapshot.running:
            return
        try:
            why = f"the demonstration moves the parameters to {n_ps} PS while training continues"
            self.job.decide(Scale.to(plan, why=why))
        except DlroverError as error:
            self.console.print(f"{plan.short}: {error}")


@contextmanager
def _drawing(console: Console) -> Iterator[Draw]:
    """Give what shows a snapshot: a drawing on a terminal, lines in a file or a pipe."""
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, refresh_per_second=2, transient=False) as live:
        yield lambda snapshot, rates: live.update(render(snapshot, rates))


@dataclass
class _Lines:
    """Prints what happens, and each few seconds how far the job is."""

    console: Console
    n_printed: int = 0
    due_s: float = 0.0

    def __call__(self, snapshot: JobSnapshot, rates: Sequence[float]) -> None:  # noqa: ARG002 - no chart
        for line in snapshot.story[self.n_printed :]:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self.n_printed = len(snapshot.story)
        if time.monotonic() >= self.due_s or snapshot.phase.is_final:
            self.due_s = time.monotonic() + LINE_S
            self.console.print(_progress_words(snapshot), markup=False, highlight=False, soft_wrap=True)


def _progress_words(snapshot: JobSnapshot) -> str:
    train = snapshot.train
    share = train.n_sample_done / max(train.n_sample_total, 1)
    parts = (
        f"{snapshot.phase}, {percent(share)} trained",
        units.rate(snapshot.samples_per_s),
        snapshot.target.short,
    )
    return ", ".join((*parts, host_words(snapshot))).removesuffix(", ")


def _conclude(console: Console, job: JobHandle, snapshot: JobSnapshot, out: Path) -> None:
    plan = snapshot.target
    documents = EXPORTERS["elasticjob"](snapshot.spec, plan, provenance_of(snapshot, plan), Options())
    yaml_file = out / "elasticjob.yaml"
    yaml_file.write_text(to_yaml(*documents))
    report = write_report(out / "report.html", snapshot, job.series(0))
    evaluation = snapshot.evaluation
    quality = "no rows were held out" if evaluation is None else str(evaluation)
    console.print(Group(_outcomes(snapshot), quality, f"wrote {yaml_file}", f"wrote {report}"))


def _error_words(error: float | None, *, inside: bool | None) -> str:
    return "-" if error is None else f"{signed_percent(error)}, {'inside' if inside else 'outside'}"


def _outcomes(snapshot: JobSnapshot) -> Table:
    title = "predicted against measured, samples per second; errors without what other work on the host took"
    table = Table(title=title, title_justify="left")
    for heading in ("plan", "before", "predicted (90 % band)", "measured", "the host gave", "error", "pause"):
        table.add_column(heading)
    for outcome in snapshot.outcomes:
        band, error = outcome.predicted, outcome.error
        table.add_row(
            outcome.plan.short,
            "-" if outcome.before_samples_per_s is None else f"{outcome.before_samples_per_s:,.0f}",
            "-" if band is None else f"{band.samples_per_s:,.0f} ({band.low:,.0f} to {band.high:,.0f})",
            f"{outcome.measured_samples_per_s:,.0f}",
            f"{percent(1 - outcome.host_share)} of its speed",
            _error_words(error, inside=outcome.inside_band),
            units.duration(outcome.pause_s),
        )
    return table
