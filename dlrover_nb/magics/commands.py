"""What each verb does: one method per verb, each returning an object that shows itself.

The same commands serve the notebook and the command line. They hold the little state that a session has: the
cluster, names seen lately (for completion, which must do no I/O), and the proposals that were shown last. An
`accept` without an id accepts the proposal that its user has seen, so it is refused, with the reason, when a
better one has taken its place since; only where none was shown it means the open one.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, assert_never

from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.export.elasticjob import Pod, elasticjob, provenance_of, to_yaml, validate, write
from dlrover_nb.core.session import connect
from dlrover_nb.core.structs.resources import Pins
from dlrover_nb.magics import requests as rq
from dlrover_nb.magics.arguments import MAGIC, help_text
from dlrover_nb.magics.formatters import (
    ConnectionView,
    DecisionView,
    ExportView,
    JobsView,
    Note,
    PlansView,
    ShardsView,
    Shown,
    StatusView,
)
from dlrover_nb.magics.job import Job
from dlrover_nb.magics.submission import own_code, spec_of
from dlrover_nb.magics.verbs import did_you_mean
from dlrover_nb.widgets.blocks import Verbatim, View

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from dlrover_nb.core.session.client import Cluster, JobHandle, JobSummary
    from dlrover_nb.core.structs.decisions import Decision
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot
    from dlrover_nb.widgets.live import LiveView


class Connector(Protocol):
    """How to get a cluster; `core.session.connect` is the one."""

    def __call__(
        self,
        kind: str,
        address: str | None,
        *,
        cpus: float | None = None,
        start: bool = True,
        machines: int | None = None,
        speed: float | None = None,
    ) -> Cluster:
        """Connect."""
        ...


class DetachedError(DlroverError):
    """A wait was interrupted; the job goes on."""


@dataclass(frozen=True, slots=True, repr=False)
class HelpView(Shown):
    """Help, as it stands."""

    title: str
    text: str

    def view(self) -> View:
        """Return the content."""
        return View(self.title, (Verbatim(self.text),))


@dataclass
class Session:
    """What one notebook, or one call of the command line, knows."""

    cluster: Cluster | None = None
    jobs: dict[str, bool] = field(default_factory=dict)  # name -> whether it runs, as seen last
    proposals: dict[str, str] = field(default_factory=dict)  # job -> id of the proposal that was shown last
    set_aside: dict[str, tuple[str, ...]] = field(default_factory=dict)  # job -> shards that wait, seen last


class Commands:
    """The verbs.

    Parameters
    ----------
    connector
        Opens a cluster.
    command
        What the user types before a verb, for texts.
    auto_connect, address
        Whether a verb that needs a cluster connects by itself, as each call of the command line must (a
        notebook says `connect` once), and where to; None is this machine.
    namespace
        The user's variables, among which a job may name its own model or data.
    """

    def __init__(
        self,
        connector: Connector = connect,
        *,
        command: str = MAGIC,
        auto_connect: bool = False,
        address: str | None = None,
        namespace: Mapping[str, object] | None = None,
    ) -> None:
        self.session = Session()
        self._namespace = {} if namespace is None else namespace
        self._connector = connector
        self._command = command
        self._auto_connect = auto_connect
        self._address = address

    def run(self, request: rq.Request, cell: str | None = None) -> object:  # noqa: C901, PLR0911, PLR0912 - the one table of verbs, closed by assert_never
        """Do what was asked and return what there is to show."""
        if cell is not None and not isinstance(request, rq.Submit):
            raise InvalidValueError(f"only submit takes a cell; use {self._command} with one percent sign")
        match request:
            case rq.Connect():
                return self.connect(request)
            case rq.Submit():
                return self.submit(request, cell)
            case rq.Jobs():
                return self.jobs()
            case rq.Status():
                return self.status(request)
            case rq.Watch():
                return self.watch(request)
            case rq.Plans():
                return self.plans(request)
            case rq.Accept():
                return self.accept(request)
            case rq.Override():
                return self.override(request)
            case rq.Reject():
                return self.reject(request)
            case rq.Scale():
                return self.scale(request)
            case rq.Pin():
                return self.pin(request)
            case rq.SetMode():
                return self.mode(request)
            case rq.Export():
                return self.export(request)
            case rq.Attach():
                return self.attach(request)
            case rq.Wait():
                return self.wait(request)
            case rq.Stop():
                return self.stop(request)
            case rq.Shards():
                return self.shards(request)
            case rq.Report():
                return self.report(request)
            case rq.Predict():
                return self.predict(request)
            case rq.Shutdown():
                return self.shutdown(request)
            case rq.Demo():
                raise InvalidValueError("the demonstration runs in a terminal: dlrover-nb demo")
            case rq.Help():
                return self.help(request)
        assert_never(request)

    def connect(self, request: rq.Connect) -> ConnectionView:
        """Start or join a cluster; a simulated one ends with it, which is refused while jobs run there."""
        if self.session.cluster is not None and self.session.cluster.simulated:
            self.session.cluster.shutdown()
        cluster = self._connector(
            request.kind, request.address, cpus=request.cpus, machines=request.machines, speed=request.speed
        )
        self.session.cluster = cluster
        self._note_jobs(cluster.jobs())
        return ConnectionView(cluster.description, cluster.capacity())

    def submit(self, request: rq.Submit, cell: str | None) -> Job:
        """Start a job."""
        spec = spec_of(request, cell)
        handle = self._cluster(start=True).submit(spec, **own_code(spec, self._namespace))
        self.session.jobs[spec.name] = True
        self.session.proposals.pop(spec.name, None)
        text = f"{spec.plan}; mode {spec.mode}\n{self._command} watch {spec.name} follows it"
        return Job(handle, Note(f"Submitted {spec.name}", text))

    def jobs(self) -> JobsView:
        """List jobs."""
        return JobsView(self._summaries())

    def status(self, request: rq.Status) -> StatusView:
        """Show a job's state."""
        handle = self.handle(request.job)
        snapshot = handle.snapshot()
        self._note_shown(snapshot)
        return StatusView(snapshot, handle.series())

    def watch(self, request: rq.Watch) -> LiveView:
        """Follow a job live."""
        handle = self.handle(request.job)
        self.session.proposals.pop(handle.name, None)  # from now on the live view shows what is open
        return Job(handle).watch()

    def plans(self, request: rq.Plans) -> PlansView:
        """Show what is proposed, and why."""
        snapshot = self.handle(request.job).snapshot()
        self._note_shown(snapshot)
        return PlansView(snapshot)

    def accept(self, request: rq.Accept) -> DecisionView:
        """Accept a proposal."""
        handle = self.handle(request.job)
        return self._decided(handle, handle.accept(self._meant(handle, request.proposal), why=request.why))

    def reject(self, request: rq.Reject) -> DecisionView:
        """Reject a proposal."""
        handle = self.handle(request.job)
        return self._decided(handle, handle.reject(self._meant(handle, request.proposal), why=request.why))

    def override(self, request: rq.Override) -> DecisionView:
        """Answer a proposal with another plan; what is not given stays as it runs."""
        handle = self.handle(request.job)
        plan = request.sizes.applied_to(handle.snapshot().target)
        proposal = self._meant(handle, request.proposal)
        return self._decided(handle, handle.override(plan, proposal=proposal, why=request.why))

    def scale(self, request: rq.Scale) -> DecisionView:
        """Change the running plan; what is not given stays as it runs."""
        handle = self.handle(request.job)
        plan = request.sizes.applied_to(handle.snapshot().target)
        return self._decided(handle, handle.scale(plan, why=request.why))

    def pin(self, request: rq.Pin) -> DecisionView:
        """Fix parts of every plan to come."""
        handle = self.handle(request.job)
        if not request.clear:
            request.sizes.check_given()
        pins = request.sizes.pinned(Pins() if request.clear else handle.snapshot().pins)
        return self._decided(handle, handle.pin(pins, why=request.why))

    def mode(self, request: rq.SetMode) -> DecisionView:
        """Say who decides from now on."""
        handle = self.handle(request.job)
        return self._decided(handle, handle.set_mode(request.mode, why=request.why))

    def export(self, request: rq.Export) -> ExportView:
        """Write a plan as ElasticJob YAML, or only show it."""
        snapshot = self.handle(request.job).snapshot()
        plan = _plan_named(snapshot, request.plan)
        pod = replace(Pod(), namespace=request.namespace)
        if request.image:
            pod = replace(pod, image=request.image)
        document = elasticjob(snapshot.spec, plan, provenance_of(snapshot, plan), pod)
        if problems := validate(document):
            raise InvalidValueError(f"ElasticJob's schema refuses the export: {'; '.join(problems)}")
        text = to_yaml(document)
        path = write(request.output, text, force=request.force) if request.output else None
        return ExportView(None if path is None else str(path), text)

    def attach(self, request: rq.Attach) -> Job:
        """Get hold of a job."""
        return Job(self.handle(request.job))

    def wait(self, request: rq.Wait) -> StatusView:
        """Block until the job has ended or proposes something; an interrupt lets go of it."""
        handle = self.handle(request.job)
        try:
            snapshot = handle.wait(request.timeout_s, until=request.until)
        except KeyboardInterrupt as error:
            raise DetachedError(
                f"job {handle.name} goes on; `{self._command} stop {handle.name}` stops it"
            ) from error
        return StatusView(snapshot, handle.series())

    def stop(self, request: rq.Stop) -> StatusView:
        """Stop a job."""
        handle = self.handle(request.job)
        snapshot = handle.stop(why=request.why)
        self.session.jobs[handle.name] = not snapshot.phase.is_final
        return StatusView(snapshot, handle.series())

    def shards(self, request: rq.Shards) -> ShardsView:
        """Show the account of rows, after a shard was decided about if one is named."""
        handle = self.handle(request.job)
        if request.retry is not None:
            handle.retry_shard(request.retry, why=request.why)
        elif request.skip is not None:
            handle.skip_shard(request.skip, why=request.why)
        snapshot = handle.snapshot()
        self.session.set_aside[handle.name] = tuple(str(told.shard) for told in snapshot.quarantined)
        return ShardsView(snapshot)

    def report(self, request: rq.Report) -> Note:
        """Write a job's report."""
        from dlrover_nb.widgets.report import report_html  # noqa: PLC0415 - views load when asked for

        handle = self.handle(request.job)
        html = report_html(handle.snapshot(), handle.series())
        path = write(request.output, html, force=request.force)
        return Note(f"Report of {handle.name}", f"written to {path}")

    def predict(self, request: rq.Predict) -> Note:
        """Score the rows of a file; no cluster is needed."""
        from dlrover_nb.core.session.trained import load_model, write_scores  # noqa: PLC0415 - it loads torch

        scores = load_model(request.job).predict(request.rows)
        path = write_scores(request.output, scores, force=request.force)
        text = f"probabilities of {len(scores):,} rows, mean {scores.mean():.4f}, written to {path}"
        return Note(f"Prediction of {request.job}", text)

    def shutdown(self, request: rq.Shutdown) -> Note:
        """End the cluster if it was started here, else let go of it; live views keep what they saw last."""
        from dlrover_nb.widgets.live import POLLER  # noqa: PLC0415 - views load when asked for

        cluster = self._cluster()
        POLLER.look()
        told = cluster.shutdown(force=request.force)
        POLLER.forget_all()
        self.session = Session()
        return Note("Shutdown", told)

    def help(self, request: rq.Help) -> HelpView:
        """Explain all verbs, or one."""
        title = f"Help: {request.verb}" if request.verb else "Help"
        return HelpView(title, help_text(request.verb, command=self._command))

    def handle(self, name: str | None) -> JobHandle:
        """Return the named job, or the only one that runs."""
        cluster = self._cluster()
        if name is None:
            name = self._only_job()
        handle = cluster.job(name)
        self.session.jobs.setdefault(name, True)
        return handle

    def _only_job(self) -> str:
        """Return the one job that runs, or, where none does, the one job there is."""
        jobs = [j for j in self._summaries() if j.live]
        running = [j.name for j in jobs if not j.phase.is_final]
        candidates = running or [j.name for j in jobs]
        if len(candidates) == 1:
            return candidates[0]
        if not candidates:
            raise NotFoundError(f"no job here; start one with `{self._command} submit NAME`")
        what = "jobs run" if running else "jobs are here, none of which runs"
        raise InvalidValueError(f"{len(candidates)} {what}; name one of them: {', '.join(candidates)}")

    def _cluster(self, *, start: bool = False) -> Cluster:
        """Return the cluster; only a verb that brings a job may start one."""
        if self.session.cluster is None:
            if not self._auto_connect:
                raise NotFoundError(f"not connected; `{self._command} connect ray` starts or joins a cluster")
            self.session.cluster = self._connector("ray", self._address, start=start)
        return self.session.cluster

    def _summaries(self) -> tuple[JobSummary, ...]:
        jobs = self._cluster().jobs()
        self._note_jobs(jobs)
        return jobs

    def _note_jobs(self, jobs: Iterable[JobSummary]) -> None:
        self.session.jobs = {j.name: not j.phase.is_final for j in jobs if j.live}

    def _note_shown(self, snapshot: JobSnapshot) -> None:
        name, proposal = snapshot.spec.name, snapshot.open_proposal
        if proposal is None:
            self.session.proposals.pop(name, None)
        else:
            self.session.proposals[name] = proposal.id

    def _meant(self, handle: JobHandle, proposal: str | None) -> str | None:
        return proposal or self.session.proposals.get(handle.name)

    def _decided(self, handle: JobHandle, decision: Decision) -> DecisionView:
        self.session.proposals.pop(handle.name, None)
        return DecisionView(decision, handle.snapshot())


def _plan_named(snapshot: JobSnapshot, name: str) -> ResourcePlan:
    """Return the current plan, or a proposal's."""
    if name == "current":
        return snapshot.target
    plans = {p.id: p.candidate.plan for p in snapshot.proposals}
    if name not in plans:
        raise NotFoundError(
            f"job {snapshot.spec.name} has no plan {name!r}; {did_you_mean(name, ('current', *plans))}"
        )
    return plans[name]
