"""A job as Python sees it: to look at, to steer and to await."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.api import past
from dlrover_nb.api.sizes import Sizes
from dlrover_nb.api.steering import Steering
from dlrover_nb.api.views import (
    HistoryView,
    LogsView,
    Note,
    PlansView,
    ShardsView,
    StatusView,
    WhatIfView,
    WhyView,
    logs_title,
)
from dlrover_nb.core.client.handle import Until
from dlrover_nb.core.errors import BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.files import write

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from dlrover_nb.api.exports import ExportView
    from dlrover_nb.api.views import Shown
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.resources import ResourcePlan
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.live import LiveView
    from dlrover_nb.widgets.poller import Poller

NEW_S = 2.0  # a job's master takes a moment to start; till then the first display must not wait for it


class Job(Steering):
    """A job under its name; shows its present state.

    Every method asks the job's master anew, so that a `Job` never grows stale, and raises `BackendError`, one
    line that says what to do, when the master cannot be reached. ``await job`` waits for its end without
    blocking; an interrupted or cancelled wait leaves the job alone.

    Parameters
    ----------
    handle
        The client's side of the job, a `dlrover_nb.core.client.handle.JobHandle`.
    poller
        Keeps live views of the job up to date; the one of its cluster.
    first
        Shown instead of the state within `NEW_S` of the making, so that a submit's cell ends at once.
    """

    def __init__(self, handle: JobHandle, poller: Poller, first: Note | None = None) -> None:
        super().__init__(handle)
        self.poller = poller
        self._first = first
        self._made_s = time.monotonic()

    # what it is

    def snapshot(self) -> JobSnapshot:
        """Return the newest picture of the job, as a record."""
        return self.handle.snapshot()

    def series(self, cursor: int = 0) -> SeriesChunk:
        """Return telemetry as columns of equal length.

        Parameters
        ----------
        cursor
            Only what is newer than this ``.cursor`` of an earlier call; 0: all that is kept.

        Examples
        --------
        >>> job.series().job["samples_per_s"]
        """
        return self.handle.series(cursor)

    def status(self) -> StatusView:
        """Return the job's present state: progress, throughput, nodes, memory, the open proposal."""
        looks = self.handle.with_short_timeout
        return StatusView(looks.snapshot(), looks.series())

    def watch(self) -> LiveView:
        """Return a live view; a front end without widgets shows its static form."""
        from dlrover_nb.widgets.live import LiveView  # noqa: PLC0415 - views load when asked for

        return LiveView(self.handle, self.poller)

    def plans(self) -> PlansView:
        """Return the open proposal, the Pareto front, the fit and its curves, and how plans turned out."""
        return PlansView(self.handle.with_short_timeout.snapshot())

    def why(self, proposal: str | None = None) -> WhyView:
        """Say why a plan is proposed, or why none is, and what would change that.

        Parameters
        ----------
        proposal
            Its id, such as ``"p3"``; None: the open one, and where none is, the plan that runs.

        Returns
        -------
        WhyView
            The constraints that bind, what one more step along each axis would bring, the measurements
            behind it, and the nearest change of a number that would turn it; ``.explanation`` is the record.

        Raises
        ------
        NotFoundError
            When there is no proposal of that id.

        Examples
        --------
        >>> job.why("p1")
        """
        return WhyView(self.handle.explain(proposal), self.handle.snapshot())

    def whatif(
        self,
        *plans: ResourcePlan,
        workers: int | None = None,
        ps: int | None = None,
        worker_cpu: float | None = None,
        ps_cpu: float | None = None,
        worker_memory_mib: int | None = None,
        ps_memory_mib: int | None = None,
    ) -> WhatIfView:
        """Say what plans would bring if they ran; nothing changes.

        Parameters
        ----------
        *plans
            Plans to weigh, with the parts below; none: the one that runs, with those parts.
        workers, ps
            Number of workers, and of parameter servers.
        worker_cpu, ps_cpu
            Cores of each.
        worker_memory_mib, ps_memory_mib
            MiB of each.

        Returns
        -------
        WhatIfView
            For each plan its predicted throughput with a 90 % band, its cost, and why a decision for it
            would be refused now, if it would; ``.weighed`` holds the records.

        Raises
        ------
        InvalidValueError
            When nothing is given, or a size is none that a node can have.

        Examples
        --------
        >>> job.whatif(workers=4).weighed[0].candidate
        """
        sizes = Sizes(workers, ps, worker_cpu, ps_cpu, worker_memory_mib, ps_memory_mib)
        asked = tuple(sizes.applied_to(plan) for plan in plans) or (self._plan(None, sizes),)
        return WhatIfView(self.handle.weigh(*asked), self.handle.snapshot())

    def logs(self, node: str | None = None, *, n: int = 100) -> LogsView:
        """Return what nodes wrote, the newest last; nodes that are gone are among them.

        Where the job's master is gone too, these are the lines that it left on this machine.

        Parameters
        ----------
        node
            Name of one, such as ``"worker-0"``; None: all.
        n
            How many lines.

        Raises
        ------
        NotFoundError
            When no node of that name is known; it names the nearest.
        InvalidValueError
            When `n` is below 1.
        BackendError
            When the master cannot be reached, and nothing of the job is on this machine.

        Examples
        --------
        >>> job.logs("worker-0", n=20)
        """
        try:
            return LogsView(logs_title(self.name, node), self.handle.logs(node, n_line=n))
        except BackendError as gone:
            if self.handle.simulated:
                raise
            return past.logs(self.name, node, n=n, gone=gone)

    def history(self, run: str | None = None) -> HistoryView:
        """Look back on this run of the job, or on an earlier one, as the history keeps it.

        Parameters
        ----------
        run
            Id of the run, as `Cluster.history` lists it; None: the newest.

        Raises
        ------
        NotFoundError
            When there is no such run, or the job is simulated: nothing of that is kept.

        Examples
        --------
        >>> job.history().history.outcomes
        """
        from dlrover_nb.core.client.past_runs import run_history  # noqa: PLC0415 - SQLAlchemy loads when asked for

        if run is None and self.handle.snapshot().simulated:
            raise NotFoundError(f"job {self.name} is simulated: no history is kept of it; see its status")
        return HistoryView(run_history(self.name, run))

    # its rows

    def shards(self) -> ShardsView:
        """Return the exact account of rows, and the shards that wait for a decision."""
        looks = self.handle.with_short_timeout
        return ShardsView(looks.snapshot(), looks.series())

    def retry_shard(self, shard: int, *, why: str = "") -> ShardsView:
        """Train a shard again that ended its workers, after its rows were mended.

        Parameters
        ----------
        shard
            Its number, as `shards` shows it.
        why
            Reason, kept in the job's story.

        Raises
        ------
        InvalidValueError
            When it is not set aside.

        Examples
        --------
        >>> job.retry_shard(7, why="rows mended")
        """
        self.handle.retry_shard(shard, why=why)
        return self.shards()

    def skip_shard(self, shard: int, *, why: str = "") -> ShardsView:
        """Go on without a shard that ended its workers.

        Parameters
        ----------
        shard
            Its number, as `shards` shows it.
        why
            Reason, kept in the job's story.

        Raises
        ------
        InvalidValueError
            When it is not set aside.

        Examples
        --------
        >>> job.skip_shard(7, why="damaged rows")
        """
        self.handle.skip_shard(shard, why=why)
        return self.shards()

    # its end

    def wait(self, timeout_s: float | None = None, *, until: Until | str = Until.END) -> StatusView:
        """Block until the job has ended, or proposes a plan.

        Parameters
        ----------
        timeout_s
            Give up waiting after so many seconds; None: never.
        until
            ``"end"`` of the job, or ``"proposal"``: an open one, or the end.

        Returns
        -------
        StatusView
            Its state then; ``.snapshot`` holds the record, ``.phase`` how it ended.

        Raises
        ------
        InvalidValueError
            For another word than these two.

        Examples
        --------
        >>> job.wait(until="proposal", timeout_s=60)
        """
        if until not in tuple(Until):
            raise InvalidValueError(f"cannot wait for {until!r}; known: {', '.join(Until)}")
        return self._state(self.handle.wait(timeout_s, until=Until(until)))

    def stop(self, *, why: str = "") -> StatusView:
        """Stop the job, keeping what it learnt, and return its last state.

        Parameters
        ----------
        why
            Reason, kept in the job's story.

        Raises
        ------
        BackendError
            When its master cannot be reached.

        Examples
        --------
        >>> job.stop(why="good enough")
        """
        return self._state(self.handle.stop(why=why))

    def __await__(self) -> Generator[object, None, StatusView]:
        """Wait for the end of the job; a cancelled wait leaves the job alone."""
        return self._state((yield from self.handle.__await__()))

    # what it leaves

    def export(  # noqa: PLR0913 - what the plan does not say, each by its name
        self,
        kind: str = "elasticjob",
        plan: ResourcePlan | str = "current",
        *,
        path: Path | str | None = None,
        force: bool = False,
        auto_scale: bool = False,
        check: bool = False,
        image: str | None = None,
        namespace: str | None = None,
    ) -> ExportView:
        """Return a plan as YAML for another system, with where it came from in annotations.

        Parameters
        ----------
        kind
            ``"elasticjob"``, ``"elasticjob-0"`` (the older schema), ``"scaleplan"``, ``"tfjob"``,
            ``"pytorchjob"``, ``"rayjob"``, ``"jobset"`` or ``"pods"``.
        plan
            A plan, ``"current"``, or the id of a proposal such as ``"p3"``.
        path
            File to write; None: it is only shown.
        force
            Overwrite the file where it is there.
        auto_scale
            Let DLRover plan again from there; by default the plan that was accepted is what runs.
        check
            Say what it was held against, and what the API server says in a dry run where the job runs on
            Kubernetes. It is held against the real schema in any case.
        image
            Of the pods.
        namespace
            Where it goes; None leaves it to ``kubectl``.

        Returns
        -------
        ExportView
            ``.text`` is the YAML, ``.path`` the file.

        Raises
        ------
        InvalidValueError
            For an unknown kind, what the schema refuses (with its path), or a file that is there already.
        NotFoundError
            When there is no such proposal, or no such folder.

        Examples
        --------
        >>> job.export(plan="p3", path="elasticjob.yaml")
        """
        from dlrover_nb.api.exports import export, written  # noqa: PLC0415 - exports load when asked for
        from dlrover_nb.core.export import Options  # noqa: PLC0415 - as above

        options = Options(namespace=namespace, auto_scale=auto_scale)
        if image:
            options = replace(options, image=image)
        shown = export(self.handle.snapshot(), kind, plan, options, checked=check, server=self.handle.link)
        return shown if path is None else written(shown, path, force=force)

    def predict(self, rows: object) -> NDArray[np.float32]:
        """Return the probability of each row by the model of the last checkpoint.

        Parameters
        ----------
        rows
            A pandas or pyarrow table, or a file, with the columns that were trained on.

        Raises
        ------
        NotFoundError
            When there is no checkpoint yet.
        InvalidValueError
            When a column is missing.

        Examples
        --------
        >>> job.predict("new.parquet").mean()
        """
        return self.handle.predict(rows)

    def report(self, path: Path | str, *, force: bool = False) -> Note:
        """Write a self-contained HTML report.

        Parameters
        ----------
        path
            File to write.
        force
            Overwrite it where it is there.

        Raises
        ------
        InvalidValueError, NotFoundError
            When it is there already or cannot be written, or its folder is not there.

        Examples
        --------
        >>> job.report("report.html", force=True)
        """
        from dlrover_nb.widgets.report import report_html  # noqa: PLC0415 - views load when asked for

        html = report_html(self.handle.snapshot(), self.handle.series())
        return Note(f"Report of {self.name}", f"written to {write(path, html, force=force)}")

    def _state(self, snapshot: JobSnapshot) -> StatusView:
        return StatusView(snapshot, self.handle.series())

    def _shown(self) -> Shown:
        if self._first is not None and time.monotonic() - self._made_s < NEW_S:
            return self._first
        try:
            return self.status()
        except DlroverError as error:
            return Note(f"Job {self.name}", str(error))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self._shown()._repr_mimebundle_(include, exclude)

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return f"Job({self.name!r})"
