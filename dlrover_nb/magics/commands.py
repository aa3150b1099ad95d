"""What each verb does: one method per verb, each returning an object that shows itself.

The same commands serve the notebook and the command line. They hold the little state that a session has: the
cluster, names seen lately (for completion, which must do no I/O), and the proposals that were shown last. An
`accept` without an id accepts the proposal that its user has seen, so it is refused, with the reason, when a
better one has taken its place since; only where none was shown it means the open one.
"""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol, assert_never

from dlrover_nb.api import past
from dlrover_nb.api.cluster import Cluster, candidates, only_job
from dlrover_nb.api.job import Job
from dlrover_nb.api.views import Note, RunsView, Shown
from dlrover_nb.core.connect import connect
from dlrover_nb.core.connect.kinds import read_address
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.magics import requests as rq
from dlrover_nb.magics.arguments import MAGIC, help_text
from dlrover_nb.magics.session import Session
from dlrover_nb.magics.submission import own_code, spec_of
from dlrover_nb.widgets.blocks import Verbatim, View

if TYPE_CHECKING:
    from typing import Unpack

    from dlrover_nb.api.exports import CheckView, ExportView, ImportView
    from dlrover_nb.api.views import (
        DecisionView,
        HistoryView,
        JobsView,
        LogsView,
        PlansView,
        ShardsView,
        StatusView,
        WhatIfView,
        WhyView,
    )
    from dlrover_nb.core.client.cluster import Cluster as CoreCluster
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.connect.kinds import Options
    from dlrover_nb.widgets.live import LiveView
    from dlrover_nb.widgets.many import ManyJobs


class Connector(Protocol):
    """How to get a cluster; `core.session.connect` is the one."""

    def __call__(
        self, kind: str, address: str | None, *, start: bool = True, **options: Unpack[Options]
    ) -> CoreCluster:
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
        notebook says `connect` once), and where to, as `read_address` reads it; None is this machine.
    namespace
        The user's variables: a cell in Python runs among them, and a job may name its own model or data.
    """

    def __init__(
        self,
        connector: Connector = connect,
        *,
        command: str = MAGIC,
        auto_connect: bool = False,
        address: str | None = None,
        namespace: dict[str, object] | None = None,
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
            case rq.Why():
                return self.why(request)
            case rq.WhatIf():
                return self.whatif(request)
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
            case rq.History():
                return self.history(request)
            case rq.Score():
                return past.score(request.owner, request.days)
            case rq.Undo():
                return self._decided(self.job(request.job).undo(request.decision, why=request.why))
            case rq.Logs():
                return self.logs(request)
            case rq.Export():
                return self.export(request)
            case rq.Import():
                return self.import_(request)
            case rq.Attach():
                return self.attach(request)
            case rq.Wait():
                return self.wait(request)
            case rq.Stop():
                return self.stop(request)
            case rq.Delete():
                return self.delete(request)
            case rq.Shards():
                return self.shards(request)
            case rq.Report():
                return self.report(request)
            case rq.Predict():
                return self.predict(request)
            case rq.Dash():
                return self.dash()
            case rq.Shutdown():
                return self.shutdown(request)
            case rq.Demo():
                raise InvalidValueError("the demonstration runs in a terminal: dlrover-nb demo")
            case rq.Help():
                return self.help(request)
        assert_never(request)

    def connect(self, request: rq.Connect) -> Cluster:
        """Start or join a cluster; a simulated one ends with it, which is refused while jobs run there."""
        previous = self.session.cluster
        if previous is not None and previous.simulated:
            previous.shutdown()
        core = self._connector(
            request.kind,
            request.address,
            cpus=request.cpus,
            machines=request.machines,
            speed=request.speed,
            context=request.context,
            namespace=request.namespace,
        )
        is_again = previous is not None and request == self.session.connected_by
        cluster = Cluster(core, previous.poller if is_again and previous is not None else None)
        self.session.cluster, self.session.connected_by = cluster, request
        with contextlib.suppress(BackendError):  # what is shown says it, and what is allowed
            self.session.note_jobs(cluster.jobs())
        return cluster

    def submit(self, request: rq.Submit, cell: str | None) -> Job | StatusView:
        """Start a job, and wait for its end where that was asked."""
        if not self._auto_connect:
            self._cluster()  # no code of the user runs where no job can
        spec = spec_of(request, cell, self._namespace)
        job = self._cluster(start=True).submit(spec, **own_code(spec, self._namespace))
        self.session.jobs[spec.name] = True
        self.session.shown.pop(spec.name, None)
        if request.wait:
            return self.wait(rq.Wait(spec.name, None))
        text = f"{spec.plan}; mode {spec.mode}\n{self._command} watch {spec.name} follows it"
        return Job(job.handle, job.poller, Note(f"Submitted {spec.name}", text))

    def jobs(self) -> JobsView:
        """List jobs."""
        jobs = self._cluster().jobs()
        self.session.note_jobs(jobs)
        return jobs

    def status(self, request: rq.Status) -> StatusView:
        """Show a job's state."""
        shown = self.job(request.job).status()
        self.session.note_shown(shown.snapshot)
        return shown

    def watch(self, request: rq.Watch) -> LiveView:
        """Follow a job live."""
        job = self.job(request.job)
        self.session.shown.pop(job.name, None)  # from now on the live view shows what is open
        return job.watch()

    def plans(self, request: rq.Plans) -> PlansView:
        """Show what is proposed, and why."""
        shown = self.job(request.job).plans()
        self.session.note_shown(shown.snapshot)
        return shown

    def why(self, request: rq.Why) -> WhyView:
        """Say why a plan is proposed: the one named, the one shown last, or the open one."""
        job = self.job(request.job)
        shown = job.why(request.proposal or self.session.shown.get(job.name))
        self.session.note_names(shown.snapshot)
        return shown

    def whatif(self, request: rq.WhatIf) -> WhatIfView:
        """Say what another plan would bring; what is not given stays as it runs."""
        return self.job(request.job).whatif(**asdict(request.sizes))

    def accept(self, request: rq.Accept) -> DecisionView:
        """Accept a proposal."""
        job = self.job(request.job)
        return self._decided(job.accept(self._meant(job, request.proposal), why=request.why))

    def reject(self, request: rq.Reject) -> DecisionView:
        """Reject a proposal."""
        job = self.job(request.job)
        return self._decided(job.reject(self._meant(job, request.proposal), why=request.why))

    def override(self, request: rq.Override) -> DecisionView:
        """Answer a proposal with another plan; what is not given stays as it runs."""
        job = self.job(request.job)
        proposal = self._meant(job, request.proposal)
        return self._decided(job.override(**asdict(request.sizes), proposal=proposal, why=request.why))

    def scale(self, request: rq.Scale) -> DecisionView:
        """Change the running plan; what is not given stays as it runs."""
        return self._decided(self.job(request.job).scale(**asdict(request.sizes), why=request.why))

    def pin(self, request: rq.Pin) -> DecisionView:
        """Fix parts of every plan to come."""
        job = self.job(request.job)
        return self._decided(job.pin(**asdict(request.sizes), clear=request.clear, why=request.why))

    def mode(self, request: rq.SetMode) -> DecisionView:
        """Say who decides from now on."""
        return self._decided(self.job(request.job).mode(request.mode, why=request.why))

    def logs(self, request: rq.Logs) -> LogsView:
        """Show what nodes wrote; a job that is over is read without a cluster too."""
        try:
            cluster = self._cluster()
        except (NotFoundError, BackendError) as gone:
            if request.job is None:
                raise
            return past.logs(request.job, request.node, n=request.n_line, gone=gone)
        name = request.job or only_job(self.jobs())
        return cluster.logs(name, request.node, n=request.n_line)

    def history(self, request: rq.History) -> HistoryView | RunsView:
        """Look back; no cluster is needed."""
        cluster = self.session.cluster
        if cluster is not None and cluster.simulated and request.run is None:
            for job in cluster.jobs():
                if job.name == request.job:
                    return cluster.job(job.name).history()  # which says that nothing of it is kept
        shown = past.history(request.job, request.run)
        if isinstance(shown, RunsView):
            self.session.runs = past.ids(shown.runs)
        return shown

    def export(self, request: rq.Export) -> ExportView:
        """Write a plan as YAML for another system, or only show it."""
        job = self.job(request.job)
        return job.export(
            request.kind,
            request.plan,
            path=request.output,
            force=request.force,
            auto_scale=request.auto_scale,
            check=request.check,
            image=request.image,
            namespace=request.namespace,
        )

    def import_(self, request: rq.Import) -> ImportView | CheckView | Job | DecisionView:
        """Read an exported file; check it, start its job, or scale the running one to its plan."""
        from dlrover_nb.api.exports import check_file, import_file  # noqa: PLC0415 - exports load when asked for

        if request.check:
            return check_file(request.file, self._maybe_cluster())
        acts = request.submit or request.apply
        shown = import_file(
            request.file, self._cluster(start=request.submit) if acts else self._maybe_cluster()
        )
        if request.submit:
            job = shown.submit(
                **(own_code(shown.imported.job, self._namespace) if shown.imported.job else {})
            )
            self.session.jobs[job.name] = True
            return job
        return self._decided(shown.apply()) if request.apply else shown

    def attach(self, request: rq.Attach) -> Job | JobsView:
        """Find a job again, or all of them."""
        jobs = self.jobs()
        return self.job(request.job) if request.job or len(candidates(jobs)) < 2 else jobs

    def wait(self, request: rq.Wait) -> StatusView:
        """Block until the job has ended or proposes something; an interrupt lets go of it."""
        job = self.job(request.job)
        try:
            return job.wait(request.timeout_s, until=request.until)
        except KeyboardInterrupt as error:
            raise DetachedError(
                f"job {job.name} goes on; `{self._command} stop {job.name}` stops it"
            ) from error

    def stop(self, request: rq.Stop) -> StatusView:
        """Stop a job."""
        job = self.job(request.job)
        shown = job.stop(why=request.why)
        self.session.jobs[job.name] = not shown.phase.is_final
        return shown

    def delete(self, request: rq.Delete) -> Note:
        """Remove a job."""
        told = self._cluster().delete(request.job, force=request.force)
        for known in (self.session.jobs, self.session.names, self.session.shown):
            known.pop(request.job, None)
        return told

    def shards(self, request: rq.Shards) -> ShardsView:
        """Show the account of rows, after a shard was decided about if one is named."""
        job = self.job(request.job)
        if request.retry is not None:
            shown = job.retry_shard(request.retry, why=request.why)
        elif request.skip is not None:
            shown = job.skip_shard(request.skip, why=request.why)
        else:
            shown = job.shards()
        self.session.note_names(shown.snapshot)
        return shown

    def report(self, request: rq.Report) -> Note:
        """Write a job's report."""
        return self.job(request.job).report(request.output, force=request.force)

    def predict(self, request: rq.Predict) -> Note:
        """Score the rows of a file; a job that ran on this machine needs no cluster for that."""
        from dlrover_nb.core.client.trained_model import load_model, write_scores  # noqa: PLC0415 - it loads torch

        scores = load_model(self._trained(request.job)).predict(request.rows)
        path = write_scores(request.output, scores, force=request.force)
        text = f"probabilities of {len(scores):,} rows, mean {scores.mean():.4f}, written to {path}"
        return Note(f"Prediction of {request.job}", text)

    def dash(self) -> ManyJobs:
        """Follow all jobs live."""
        self.session.shown.clear()  # from now on the live view shows what is open
        return self._cluster().dash()

    def shutdown(self, request: rq.Shutdown) -> Note:
        """End the cluster if it was started here, else let go of it; live views keep what they saw last."""
        told = self._cluster().shutdown(force=request.force)
        self.session = Session()
        return told

    def help(self, request: rq.Help) -> HelpView:
        """Explain all verbs, or one."""
        title = f"Help: {request.verb}" if request.verb else "Help"
        return HelpView(title, help_text(request.verb, command=self._command))

    def job(self, name: str | None) -> Job:
        """Return the named job, or the only one that runs."""
        if name is None:
            name = only_job(self.jobs())
        job = self._cluster().job(name)
        self.session.jobs.setdefault(name, True)
        return job

    def _trained(self, name: str) -> JobHandle | str:
        """Return a job whose files only its own nodes see; else the name, to be found on this machine."""
        is_near = self.session.cluster is None and read_address(self._address)[0] != "kubernetes"
        try:
            handle = None if is_near else self._cluster().job(name).handle
        except DlroverError:  # it may be the run folder of one that ran here
            return name
        return handle if handle is not None and handle.is_far else name

    def _cluster(self, *, start: bool = False) -> Cluster:
        """Return the cluster; only a verb that brings a job may start one."""
        if self.session.cluster is None:
            if not self._auto_connect:
                raise NotFoundError(f"not connected; `{self._command} connect ray` starts or joins a cluster")
            kind, address, options = read_address(self._address)
            self.session.cluster = Cluster(self._connector(kind, address, start=start, **options))
        return self.session.cluster

    def _maybe_cluster(self) -> Cluster | None:
        """Return the cluster where there is one: what only reads a file does without."""
        try:
            return self._cluster()
        except NotFoundError:
            return None

    def _meant(self, job: Job, proposal: str | None) -> str | None:
        return proposal or self.session.shown.get(job.name)

    def _decided(self, shown: DecisionView) -> DecisionView:
        self.session.note_names(shown.snapshot)
        self.session.shown.pop(shown.snapshot.spec.name, None)
        return shown
