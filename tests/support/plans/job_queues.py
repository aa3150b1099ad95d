"""Several jobs on one cluster: waiting, running, finished, first come first served.

A job starts as soon as the cores of its first plan are free, and not only when its whole budget is: it grows
while it runs, by what is free then. No cores are held back for the jobs that wait.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import InvalidValueError, NotFoundError

ROUNDING = 1e-9  # cores


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A job in the waiting queue: the cores of its first plan, and the most that it may have."""

    name: str
    start_cores: float
    budget_cores: float


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job in the running queue, with the cores that it has."""

    name: str
    cores: float
    budget_cores: float


@dataclass(frozen=True, slots=True)
class JobQueues:
    """The three queues of a cluster; every change returns new ones."""

    total_cores: float
    waiting: tuple[WaitingJob, ...] = ()
    running: tuple[RunningJob, ...] = ()
    finished: tuple[str, ...] = ()

    @property
    def free_cores(self) -> float:
        """Cores that no job has."""
        return max(self.total_cores - sum(job.cores for job in self.running), 0.0)

    @property
    def names(self) -> tuple[str, ...]:
        """All jobs, those in the waiting queue first."""
        return (*(job.name for job in self.waiting), *(job.name for job in self.running), *self.finished)

    def job(self, name: str) -> RunningJob:
        """Return a running job.

        Raises
        ------
        NotFoundError
            When none of that name runs.
        """
        match = next((job for job in self.running if job.name == name), None)
        if match is None:
            running = ", ".join(job.name for job in self.running) or "none"
            raise NotFoundError(f"job {shown(name)} must be running to change it (running: {running})")
        return match

    def submit(self, job: WaitingJob) -> JobQueues:
        """Return the queues with one more job at the end of the waiting queue.

        Raises
        ------
        InvalidValueError
            When its name is taken, or its first plan exceeds the whole cluster.
        """
        if job.name in self.names:
            raise InvalidValueError(f"job names must be unique, got {shown(job.name)} again; choose another")
        if job.start_cores > self.total_cores:
            raise InvalidValueError(
                f"a first plan must fit on the cluster of {self.total_cores:g} cores, "
                f"got {job.start_cores:g} for {shown(job.name)}; start it smaller"
            )
        return replace(self, waiting=(*self.waiting, job))

    def admit(self) -> JobQueues:
        """Start waiting jobs in their order, until the first one finds no room."""
        queues = self
        while queues.waiting and queues.waiting[0].start_cores <= queues.free_cores + ROUNDING:
            first, *rest = queues.waiting
            started = RunningJob(first.name, first.start_cores, first.budget_cores)
            queues = replace(queues, waiting=tuple(rest), running=(*queues.running, started))
        return queues

    def resize(self, name: str, cores: float) -> JobQueues:
        """Give a job other cores: what it asks for, as far as its budget and the free cores allow."""
        job = self.job(name)
        granted = max(min(cores, job.budget_cores, job.cores + self.free_cores), 0.0)
        resized = tuple(replace(each, cores=granted) if each is job else each for each in self.running)
        return replace(self, running=resized)

    def finish(self, name: str) -> JobQueues:
        """Move a job from the running to the finished queue; its cores are free."""
        job = self.job(name)
        rest = tuple(each for each in self.running if each is not job)
        return replace(self, running=rest, finished=(*self.finished, name))
