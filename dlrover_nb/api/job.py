"""The Python API of a job: its state, decisions about it, and its end."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.api.results import Results
from dlrover_nb.api.views.job_views import Note, PlansView, ShardsView, StatusView, WhatIfView, WhyView
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.client.until import Until
from dlrover_nb.core.commands import requests
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.plan.bounds import Pins
from dlrover_nb.core.why import question_of

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from dlrover_nb.api.views.goals_view import GoalsView
    from dlrover_nb.api.views.job_views import Shown
    from dlrover_nb.api.views.staleness_view import StalenessView
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.quality import QualityCurve
    from dlrover_nb.core.structs.views.schema import DataSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.live.browser.poller import Poller
    from dlrover_nb.widgets.live.live_view import LiveView
    from dlrover_nb.widgets.rows.tables import Tables

NEW_S = 2.0  # a job's master takes a moment to start; till then the first display must not wait for it


class Job(Results):
    """A job by name; displays its present state.

    Every method asks the job's master anew, so a `Job` is never stale, and raises `BackendError`, one line
    that says what to do, when the master cannot be reached. ``await job`` waits for its end without blocking;
    an interrupted or canceled wait leaves the job running.

    Parameters
    ----------
    handle
        The client's side of the job, a `dlrover_nb.core.client.handle.JobHandle`.
    poller
        Keeps live views of the job up to date; the one of its cluster.
    first
        Shown instead of the state within `NEW_S` of the making, so that a submit's cell ends at once.
    """

    def __init__(self, handle: JobHandle, poller: Poller, first: Shown | None = None) -> None:
        super().__init__(handle)
        self.poller = poller
        self.first = first
        self._made_s = time.monotonic()

    # what it is

    @property
    def schema(self) -> DataSchema | None:
        """What its submit took of the data; None when it was found again, or only its nodes read the rows."""
        return self.handle.schema

    def snapshot(self) -> JobSnapshot:
        """Return the newest snapshot of the job, as a record."""
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
        handle = self.handle.with_short_timeout
        return StatusView(handle.snapshot(), handle.series())

    def watch(self) -> LiveView:
        """Return a live view; a front end without widgets shows its static form."""
        from dlrover_nb.widgets.live.live_view import LiveView  # noqa: PLC0415 - views load on demand

        return LiveView(self.handle, self.poller)

    def plans(self) -> PlansView:
        """Return the open proposal, the Pareto front, the fit and its curves, and the outcomes of plans."""
        return PlansView(self.handle.with_short_timeout.snapshot())

    def plan(self, goals: str) -> GoalsView:
        """Return the cheapest plan that meets some goals, or which goal is in the way.

        Parameters
        ----------
        goals
            Such as ``"≤ 12 $/h, done by 18:00"``; see `core.structs.decisions.goals.EXAMPLES`.

        Raises
        ------
        InvalidValueError
            For a text that is no goal.
        NotFoundError
            When no plan of the job is predicted yet.

        Examples
        --------
        >>> job.plan("≤ 12 $/h, done by 18:00")
        """
        from dlrover_nb.api.views.goals_view import goals_view  # noqa: PLC0415 - views load on demand

        return goals_view(goals, self.handle.with_short_timeout.snapshot())

    def why(self, proposal: str | None = None, *, question: str | int | None = None) -> WhyView:
        """Say why a plan is proposed, or why none is, and what would change that.

        Parameters
        ----------
        proposal
            Its id, such as ``"p3"``; None: the open one, and where none is, the plan that runs.
        question
            Number or word of one of the nine questions, such as 6 or ``"why-not"``; None: all are answered.

        Returns
        -------
        WhyView
            The answers to nine questions, the constraints that bind, the effect of one more step along each
            axis, and the measurements behind it; ``.answers`` and ``.explanation`` are the records.

        Raises
        ------
        NotFoundError
            When there is no proposal of that id.
        InvalidValueError
            When there is no such question.

        Examples
        --------
        >>> job.why("p1", question="sure")
        """
        chosen = None if question is None else question_of(str(question))
        return WhyView(self.handle.explain(proposal), self.handle.snapshot(), chosen)

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
        """Predict the effect of plans; nothing changes.

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
        sizes = Pins(workers, ps, worker_cpu, ps_cpu, worker_memory_mib, ps_memory_mib)
        if not plans:
            requests.check_given(sizes)
        weighed = [sizes.applied(plan) for plan in plans or (self.handle.snapshot().target,)]
        return WhatIfView(self.handle.weigh(*weighed), self.handle.snapshot())

    def learn_curves(self, *curves: QualityCurve) -> None:
        """Let the job price plans by these curves of quality against age, and no others, from now on.

        A job knows the curves that the history had when it was submitted; this is for those that were
        measured since, as by a rehearsal.

        Parameters
        ----------
        *curves
            Such as the curves of a rehearsal, one for each way of applying gradients.

        Raises
        ------
        BackendError
            When its master does not answer.

        Examples
        --------
        >>> job.learn_curves(curve)
        >>> job.whatif(workers=8).weighed[0].candidate.quality.words
        """
        self.handle.learn_curves(curves)

    # its rows

    def shards(self) -> ShardsView:
        """Return the exact account of rows, and the shards that wait for a decision."""
        handle = self.handle.with_short_timeout
        return ShardsView(handle.snapshot(), handle.series())

    def staleness(self) -> StalenessView:
        """Return how old gradients are when applied, how far workers are apart, and what each trains.

        A gradient's age is the number of updates by other workers between the rows that it was computed from
        and the gradient itself.

        Returns
        -------
        StalenessView
            With charts; ``.ages`` are those of all gradients, ``.workers`` what is known of each worker.

        Examples
        --------
        >>> job.staleness().ages.quantile(0.95)
        """
        from dlrover_nb.api.views.staleness_view import StalenessView  # noqa: PLC0415 - NumPy loads on demand

        handle = self.handle.with_short_timeout
        return StalenessView(handle.snapshot(), handle.series())

    def retry_shard(self, shard: int, *, why: str = "") -> ShardsView:
        """Train a shard again that crashed its workers, after its rows were repaired.

        Parameters
        ----------
        shard
            Its number, as `shards` shows it.
        why
            Reason, kept in the job's story.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.

        Examples
        --------
        >>> job.retry_shard(7, why="rows mended")
        """
        self.handle.ask(requests.RetryShard(shard, why=why))
        return self.shards()

    def skip_shard(self, shard: int, *, why: str = "") -> ShardsView:
        """Continue without a shard that crashed its workers.

        Parameters
        ----------
        shard
            Its number, as `shards` shows it.
        why
            Reason, kept in the job's story.

        Raises
        ------
        InvalidValueError
            When it is not in quarantine.

        Examples
        --------
        >>> job.skip_shard(7, why="damaged rows")
        """
        self.handle.ask(requests.SkipShard(shard, why=why))
        return self.shards()

    def batches(self, sizes: Mapping[str, int], *, why: str = "") -> StatusView:
        """Set the batch sizes of workers, from one step on: smaller ones relieve a slow worker.

        Parameters
        ----------
        sizes
            Samples of one mini-batch by the worker's name; workers that are not named keep theirs.
        why
            Reason, kept in the job's story.

        Raises
        ------
        InvalidValueError
            When a worker is not there, or a size is below 1; on a simulated or an external job.

        Examples
        --------
        >>> job.batches({"worker-0": 256, "worker-1": 128}, why="worker-1 is slow")
        """
        self.handle.ask(requests.SetBatches(dict(sizes), why=why))
        return self.status()

    # its end

    @shown_waits("the job's state")
    def wait(
        self, timeout_s: float | None = None, *, until: Until | str = Until.END, check: bool = False
    ) -> StatusView:
        """Block until the job has ended, or what `until` names has come about.

        Parameters
        ----------
        timeout_s
            Stop waiting after so many seconds; None: never.
        until
            ``"end"`` of the job; ``"proposal"``: an open one; ``"mitigation"``: an open action against
            stragglers; ``"outcome"``: the last change of plan is applied and measured. Each returns at the
            end of the job too.
        check
            Raise where the job has failed, instead of returning that state.

        Returns
        -------
        StatusView
            Its state then; ``.snapshot`` holds the record, ``.phase`` how it ended.

        Raises
        ------
        InvalidValueError
            For any other value.
        JobFailedError
            When `check` is given and the job has failed.

        Examples
        --------
        >>> job.wait(until="proposal", timeout_s=60)
        """
        if until not in tuple(Until):
            raise InvalidValueError(f"cannot wait for {until!r}; choose from {', '.join(Until)}")
        shown = self._state(self.handle.wait(timeout_s, until=Until(until)))
        return shown.checked() if check else shown

    async def ended(self, *, check: bool = False) -> StatusView:
        """Wait for the end of the job without blocking, as ``await job`` does.

        Parameters
        ----------
        check
            Raise where the job has failed, instead of returning that state.

        Raises
        ------
        JobFailedError
            When `check` is given and the job has failed.

        Examples
        --------
        >>> job.ended(check=True)  # in a notebook: await job.ended(check=True)
        """
        shown = await self
        return shown.checked() if check else shown

    def finish(self, *, why: str = "") -> StatusView:
        """Train no more rows and let the job succeed: its model is evaluated as at a planned end.

        It returns at once; `wait` waits for the end.

        Parameters
        ----------
        why
            Reason, kept in the job's story.

        Raises
        ------
        StaleDecisionError
            When the job is ending already.
        InvalidValueError
            When it runs programs of others.

        Examples
        --------
        >>> job.finish(why="good enough")
        >>> job.wait()
        """
        self.handle.ask(requests.Finish(why=why))
        return self.status()

    @shown_waits("the job to stop")
    def stop(self, *, why: str = "") -> StatusView:
        """Stop the job, keeping what it learned, and return its last state.

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
        """Wait for the end of the job; a canceled wait leaves it running."""
        return self._state((yield from self.handle.__await__()))

    def _state(self, snapshot: JobSnapshot) -> StatusView:
        return StatusView(snapshot, self.handle.series())

    def view(self) -> View:
        """Return what it displays."""
        return self._shown().view()

    def tables(self) -> Tables:
        """Return its present state as data."""
        return self.status().tables()

    def _shown(self) -> Shown:
        if self.first is not None and time.monotonic() - self._made_s < NEW_S:
            return self.first
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
