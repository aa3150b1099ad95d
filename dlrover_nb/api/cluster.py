"""Where jobs run, as Python sees it: `dlrover_nb.connect` returns one of these."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.api import past
from dlrover_nb.api.job import Job
from dlrover_nb.api.submission import job_of
from dlrover_nb.api.views import ConnectionView, JobsView, Note
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.session import connect as connect_core

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from dlrover_nb.api.exports import ImportView
    from dlrover_nb.api.submission import JobText
    from dlrover_nb.api.views import HistoryView, RunsView, ScoresView, Shown
    from dlrover_nb.core.session.client import Cluster as CoreCluster
    from dlrover_nb.core.session.client import JobSummary
    from dlrover_nb.core.structs.resources import Capacity
    from dlrover_nb.widgets.many import ManyJobs


def connect(
    kind: str = "ray",
    address: str | None = None,
    *,
    cpus: float | None = None,
    start: bool = True,
    machines: int | None = None,
    speed: float | None = None,
) -> Cluster:
    """Connect to a place where jobs run.

    Parameters
    ----------
    kind
        ``"ray"``, or ``"sim"`` for a simulated cluster in this process, of which nothing is real.
    address
        ``host:port`` of an existing Ray; None for one of our own on this machine, started when there is none.
    cpus
        Cores that a Ray of our own offers; all by default.
    start
        Whether one of our own may be started when none runs.
    machines, speed
        Of a simulated cluster: how many, and how many of its seconds pass in a real one.

    Returns
    -------
    Cluster
        To submit jobs to, and to find them again on.

    Raises
    ------
    InvalidValueError
        For an unknown kind, or an option that the kind does not have.
    BackendError
        When it cannot be reached or started.
    NotFoundError
        When there is none of our own and none may be started.

    Examples
    --------
    >>> cluster = dlrover_nb.connect("sim", machines=4, speed=600)  # doctest: +SKIP
    >>> job = cluster.submit("name: ads-ctr", epochs=100)  # doctest: +SKIP
    """
    return Cluster(connect_core(kind, address, cpus=cpus, start=start, machines=machines, speed=speed))


class Cluster:
    """Where jobs run; shows itself as what it is and what it offers.

    Parameters
    ----------
    core
        The cluster underneath, a `dlrover_nb.core.session.client.Cluster`.
    """

    def __init__(self, core: CoreCluster) -> None:
        self.core = core

    @property
    def simulated(self) -> bool:
        """Whether nothing here is real."""
        return self.core.simulated

    @property
    def description(self) -> str:
        """One line: what it is, where, and what it offers."""
        return self.core.description

    def capacity(self) -> Capacity:
        """Return what jobs may use: the machines, with cores and MiB of each."""
        return self.core.capacity()

    def submit(self, job: JobText, *, model: object = None, data: object = None, **settings: object) -> Job:
        """Start a job and return at once.

        Parameters
        ----------
        job
            A `JobSpec`, a mapping with the keys of a job file, YAML text, or the path of a job file.
        model
            Your own model instead of that of the job: a class or function as `dlrover_nb.trainable`
            describes, or its name ``package.module:name``.
        data
            Your own rows instead of those of the job: an object with ``n_row`` and ``read(start, stop)`` or
            ``rows(start)``, a class or function that makes one, or its name.
        **settings
            Keys of a job file that win over `job`, such as ``epochs=3`` or ``plan={"worker": {"count": 2}}``.

        Returns
        -------
        Job
            The job, to watch, to steer and to await.

        Raises
        ------
        InvalidValueError
            When the job is malformed, its name is in use, its data is not what it says, or your own code does
            not do on a few rows what it should.
        NotFoundError
            When there is no such job file.
        CapacityError
            When its plan does not fit.

        Examples
        --------
        >>> job = cluster.submit({"name": "ads-ctr"}, epochs=3, mode="auto")  # doctest: +SKIP
        """
        spec = job_of(job, settings.items())
        handle = self.core.submit(spec, model=model, data=data)
        return Job(handle, Note(f"Submitted {spec.name}", f"{spec.plan}; mode {spec.mode}"))

    def jobs(self) -> JobsView:
        """Return all jobs, newest first: running ones, and those that the history knows."""
        return JobsView(self.core.jobs())

    def job(self, name: str | None = None) -> Job:
        """Find a job, after a restart of the kernel too.

        Parameters
        ----------
        name
            Its name; None: the only one that runs, or, where none does, the only one there is.

        Raises
        ------
        NotFoundError
            When there is none of that name (with the nearest ones).
        InvalidValueError
            When no name is given and several run.
        """
        return Job(self.core.job(only_job(self.core.jobs()) if name is None else name))

    attach = job

    def import_file(self, path: Path | str) -> ImportView:
        """Read a file of exported documents: job, plan, provenance, and what differs from the running job.

        Parameters
        ----------
        path
            YAML as `Job.export` wrote it, edited or not, or as a cluster gives it back (``kubectl get -o
            yaml``).

        Returns
        -------
        ImportView
            What it says; ``.submit()`` starts that job, ``.apply()`` scales the one that runs.

        Raises
        ------
        NotFoundError
            When there is no such file.
        InvalidValueError
            For malformed YAML (with line and column), or no document of a kind that is known.

        Examples
        --------
        >>> cluster.import_file("elasticjob.yaml").apply(why="as agreed")  # doctest: +SKIP
        """
        from dlrover_nb.api.exports import import_file  # noqa: PLC0415 - exports load when asked for

        return import_file(path, self)

    def history(self, job: str | None = None, run: str | None = None) -> HistoryView | RunsView:
        """Look back on one run of a job, or on the list of all runs; see `dlrover_nb.api.past.history`."""
        return past.history(job, run)

    def score(self, owner: str | None = None, days: float | None = None) -> ScoresView:
        """Return how good predictions were; see `dlrover_nb.api.past.score`."""
        return past.score(owner, days)

    def dash(self) -> ManyJobs:
        """Return a live view of all jobs; a click on one opens it below, with its buttons.

        A front end without widgets shows its static form; ``.panel()`` is for a served page.

        Raises
        ------
        BackendError
            When the cluster does not answer.

        Examples
        --------
        >>> cluster.dash()  # doctest: +SKIP
        """
        from dlrover_nb.widgets.many import ManyJobs  # noqa: PLC0415 - views load when asked for

        return ManyJobs(self.core)

    def shutdown(self, *, force: bool = False) -> Note:
        """End the cluster if this product started it, else only let go of it; live views keep what they saw.

        Parameters
        ----------
        force
            End it even while jobs run; they are stopped.

        Raises
        ------
        InvalidValueError
            When jobs still run and `force` is not given.
        """
        from dlrover_nb.widgets.live import POLLER  # noqa: PLC0415 - views load when asked for

        POLLER.look()
        told = self.core.shutdown(force=force)
        POLLER.forget_all()
        return Note("Shutdown", told)

    def _shown(self) -> Shown:
        try:
            return ConnectionView(self.description, self.capacity())
        except DlroverError as error:
            return Note("Cluster", str(error))

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self._shown()._repr_mimebundle_(include, exclude)

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return f"<Cluster: {self.description}>"


def only_job(jobs: Iterable[JobSummary]) -> str:
    """Return the name of the one job that runs, or, where none does, of the one job there is."""
    live = [j for j in jobs if j.live]
    running = [j.name for j in live if not j.phase.is_final]
    candidates = running or [j.name for j in live]
    if len(candidates) == 1:
        return candidates[0]
    if not candidates:
        raise NotFoundError("no job here; start one with submit")
    what = "jobs run" if running else "jobs are here, none of which runs"
    raise InvalidValueError(f"{len(candidates)} {what}; name one of them: {', '.join(candidates)}")
