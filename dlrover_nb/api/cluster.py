"""The Python API of a cluster: `dlrover_nb.connect` returns it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.api import past
from dlrover_nb.api.inputs.job_of_submit import job_of, settings_of
from dlrover_nb.api.inputs.own_parts import data_part, free_name, model_part
from dlrover_nb.api.job import Job
from dlrover_nb.api.records import Records
from dlrover_nb.api.views.connection_view import ConnectionView
from dlrover_nb.api.views.job_views import JobsView, Note, SubmittedView
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.api.views.unmanaged_view import others_blocks, unmanaged_job_view
from dlrover_nb.core.client.asked_cluster import AskedCluster
from dlrover_nb.core.errors import DlroverError, NotFoundError, UnmanagedJobError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.decisions.commands import Entry
from dlrover_nb.widgets.live.browser.poller import Poller

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.api.imports import ImportView
    from dlrover_nb.api.inputs.job_of_submit import JobText
    from dlrover_nb.api.views.job_views import LogsView, TextView
    from dlrover_nb.api.views.load_view import LoadView
    from dlrover_nb.api.views.unmanaged_view import UnmanagedJobView
    from dlrover_nb.core.client.cluster import Cluster as CoreCluster
    from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.widgets.blocks import View
    from dlrover_nb.widgets.clusters.many import ManyJobs
    from dlrover_nb.widgets.rows.tables import Tables


class Cluster(Records):
    """A cluster; displays its kind and its capacity.

    Parameters
    ----------
    core
        The cluster underneath, a `dlrover_nb.core.client.cluster.Cluster`.
    poller
        Keeps the live views of this cluster up to date; None for a new one. A second connection to a cluster
        takes that of the first, so that a shutdown updates the views of both a last time.
    entry
        Through which its commands come, for the audit.
    """

    def __init__(self, core: CoreCluster, poller: Poller | None = None, entry: Entry = Entry.PYTHON) -> None:
        self.core = core
        self._asked = AskedCluster(core, entry)
        self.poller = Poller() if poller is None else poller  # it starts no thread before the first view

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return self.core.simulated

    @property
    def description(self) -> str:
        """One line: what it is, where, and what it offers."""
        return self.core.description

    def capacity(self) -> Capacity:
        """Return what jobs may use: the machines, with cores and MiB of each."""
        return self.core.capacity()

    def load(self, *, hours: float = 24.0, record: bool = False) -> LoadView:
        """Return what each machine has, who holds it, what is used, and the samples of the last hours.

        Parameters
        ----------
        hours
            How far back samples in the history are shown.
        record
            Whether this load is written to the history, as a sample.

        Raises
        ------
        InvalidValueError
            When `hours` is not above 0.
        BackendError
            When the cluster does not answer, or the history cannot be read or written.

        Examples
        --------
        >>> cluster.load().load.idle
        """
        from dlrover_nb.api.views.load_view import LoadView  # noqa: PLC0415 - it loads the history's database
        from dlrover_nb.core.client.load_sampler import recent_points, sample_load  # noqa: PLC0415 - as above

        _check.above_zero("hours", hours)
        at_s = time.time()
        load = sample_load(self.core, at_s) if record else self.core.load()
        return LoadView(self.description, load, recent_points(load, at_s - 3600 * hours, at_s))

    @shown_waits("the job to be submitted")
    def submit(
        self, job: JobText | None = None, *, model: object = None, data: object = None, **settings: object
    ) -> Job:
        """Start a job and return at once.

        Parameters
        ----------
        job
            Its name, a `JobSpec`, a mapping with the keys of a job file, YAML text, or the path of a job
            file. None: a job of the other arguments, named after the file of its data.
        model
            The model instead of that of the job: the name of a built-in one, a mapping with keys of the
            group ``model``, or your own: a class or function as `dlrover_nb.trainable` describes, or its name
            ``package.module:name``.
        data
            The rows instead of those of the job: the path of a file, a folder or a pattern, a URL, or a list
            of these; a DataFrame, an Arrow table or a mapping of columns, which is written to a file once; a
            mapping with keys of the group ``data``, whose ``path`` may be any of these; or your own object
            with ``n_row`` and ``read(start, stop)`` or ``rows(start)``, a class or function that makes one,
            or its name.
        **settings
            Keys of a job file that win over `job`, such as ``epochs=3`` or ``plan={"worker": {"count": 2}}``;
            also sizes (``workers=2``, ``ps_cpu=1``), and keys of ``data`` and ``model`` by their own names
            (``label="clicked"``, ``learning_rate=0.1``).

        Returns
        -------
        Job
            The submitted job; ``.schema`` tells what it took of the data.

        Raises
        ------
        InvalidValueError
            When the job is malformed, its name is in use, its data does not match its description, or your
            own code fails the check on a few rows.
        NotFoundError
            When there is no such job file.
        CapacityError
            When its plan does not fit.

        Examples
        --------
        >>> job = cluster.submit(data="clicks.csv", label="clicked", model="dcn_v2", workers=2)
        """
        if job is None:
            job = {} if "name" in settings else {"name": free_name(data, {each.name for each in self.jobs()})}
        own_model, own_data = model_part(model), data_part(data)
        spec = job_of(job, (*own_model.settings, *own_data.settings, *settings_of(settings)))
        handle = self._asked.submit(spec, model=own_model.own, data=own_data.own)
        return Job(
            handle, self.poller, SubmittedView(spec, "", handle.schema, handle.bounds, handle.deadline)
        )

    def jobs(self) -> JobsView:
        """Return all jobs, newest first: running ones, and those in the history; then those of others."""
        return JobsView(self.core.jobs(), others_blocks(self.core))

    def unmanaged_job(self, name: str) -> UnmanagedJobView:
        """Find a job that other tools manage, such as a Ray job by its submission; it is only read.

        Parameters
        ----------
        name
            Its name, as `jobs` lists it.

        Raises
        ------
        NotFoundError
            When there is none of that name.

        Examples
        --------
        >>> cluster.unmanaged_job("raysubmit_x7").logs()
        """
        return unmanaged_job_view(self.core, name)

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
            When no name is given and several run, or it is managed by other tools (`UnmanagedJobError`).

        Examples
        --------
        >>> cluster.job("ads-ctr").status()
        """
        return Job(self._asked.job(self.jobs().only_name() if name is None else name), self.poller)

    def attach(self, name: str | None = None) -> Job | JobsView:
        """Find jobs again, from a new kernel: with all that they have measured so far.

        Parameters
        ----------
        name
            Of one; None: the only one that runs, or, where several do, the list of all.

        Raises
        ------
        NotFoundError
            When there is none of that name (with the nearest ones), or none at all.

        Examples
        --------
        >>> cluster.attach().series().job["samples_per_s"]
        """
        if name is not None:
            return self.job(name)
        jobs = self.jobs()
        return jobs if len(jobs.candidates) > 1 else self.job(jobs.only_name())

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
            Its content; ``.submit()`` starts that job, ``.apply()`` scales the one that runs.

        Raises
        ------
        NotFoundError
            When there is no such file.
        InvalidValueError
            For malformed YAML (with line and column), or no document of a kind that is known.

        Examples
        --------
        >>> cluster.import_file("elasticjob.yaml").apply(why="as agreed")
        """
        from dlrover_nb.api.imports import import_file  # noqa: PLC0415 - exports load on demand

        return import_file(path, start=self.submit, find=self.job)

    def logs(self, job: str, node: str | None = None, *, n: int = 100) -> LogsView | TextView:
        """Return the log lines of the nodes of a job, also after its master has ended.

        Parameters
        ----------
        job
            A job's name.
        node
            Name of one, such as ``"worker-0"``; None: all.
        n
            How many lines.

        Raises
        ------
        NotFoundError
            When there is no such job, neither here nor in what jobs left on this machine, or no such node.
        InvalidValueError
            When `n` is below 1.

        Examples
        --------
        >>> cluster.logs("ads-ctr", "worker-0", n=20)
        """
        try:
            job_here = self.job(job)
        except NotFoundError as gone:
            if self.simulated:
                raise
            return past.logs(job, node, n=n, gone=gone)
        except UnmanagedJobError:
            if node is not None:
                raise
            return self.unmanaged_job(job).logs(n=n)
        return job_here.logs(node, n=n)

    def dash(self, job: str | None = None) -> ManyJobs:
        """Return a live view of all jobs; a click on one opens it below, with its buttons.

        A front end without widgets shows its static form; ``.panel()`` is for a served page.

        Parameters
        ----------
        job
            Name of the one that is open at first; None: none.

        Raises
        ------
        NotFoundError
            When there is none of that name (with the nearest ones).
        BackendError
            When the cluster does not answer.

        Examples
        --------
        >>> cluster.dash("ads-ctr")
        """
        from dlrover_nb.widgets.clusters.many import ManyJobs  # noqa: PLC0415 - views load on demand

        opened = "" if job is None else self.job(job).name
        return ManyJobs(self._asked, self.poller, opened)

    @shown_waits("the job to be deleted")
    def delete(self, name: str, *, force: bool = False) -> Note:
        """Remove a job and all its files, also after its end; its history is kept.

        Parameters
        ----------
        name
            Of the job.
        force
            Stop it first if it runs.

        Raises
        ------
        InvalidValueError
            When it runs and `force` is not given.
        NotFoundError
            When there is no such job.

        Examples
        --------
        >>> cluster.delete("ads-ctr")
        """
        return Note(f"Deleted {name}", self._asked.delete(name, force=force))

    @shown_waits("the cluster to end")
    def shutdown(self, *, force: bool = False) -> Note:
        """Stop the cluster if this product started it, else disconnect; live views keep their last state.

        Parameters
        ----------
        force
            Stop jobs that still run.

        Raises
        ------
        InvalidValueError
            When jobs still run and `force` is not given.

        Examples
        --------
        >>> cluster.shutdown(force=True)
        """
        self.poller.refresh()
        done = self.core.shutdown(force=force)
        self.poller.close()
        self.poller = Poller()  # where the cluster itself goes on, views opened from now on are live again
        return Note("Shutdown", done)

    def standing(self) -> ClusterAccess:
        """Return facts about the cluster beside its capacity, and your rights there.

        Raises
        ------
        BackendError
            When the cluster does not answer.

        Examples
        --------
        >>> print(cluster.standing().ask)  # the Role to ask for; empty where nothing is missing
        """
        return self.core.standing()

    def view(self) -> View:
        """Return what it displays."""
        return self._shown().view()

    def tables(self) -> Tables:
        """Return it as data: its capacity, its machines, and your rights."""
        return self._shown().tables()

    def _shown(self) -> ConnectionView:
        try:
            description, standing = self.description, self.standing()
        except DlroverError as error:
            return ConnectionView("Cluster", error)
        capacity: Capacity | DlroverError
        try:
            capacity = self.capacity()
        except DlroverError as error:
            capacity = error
        return ConnectionView(description, capacity, standing)

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        return self._shown()._repr_mimebundle_(include, exclude)

    def __str__(self) -> str:
        return str(self._shown())

    def __repr__(self) -> str:
        return f"<Cluster: {self.description}>"
