"""The user's own machine as a cluster, without Ray: a job is a master process and its nodes' processes.

Without jobs no process runs: there is no head and no daemon. A job is found by the run folders below the
user's state folder, so any process of the same user finds it, and it outlives the client that submitted it.
A killed master is started again (`master_supervisor`), so a job without a living master may still go on.
Jobs share the machine: a plan fits when the machine could hold it, and `LocalBackend.room` leaves out what
the nodes of other jobs hold now.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.local.backend import LocalBackend, machine, running_nodes
from dlrover_nb.core.backends.local.link import LocalLink, start_master
from dlrover_nb.core.backends.local.record import (
    LOG,
    SUBMISSION,
    Submission,
    end_supervisor,
    has_ended,
    read_master,
    read_submission,
    read_supervisor,
    write_submission,
)
from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.client.cluster import OfThisAccount, name_taken, no_job, still_runs
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.link.rollcall import live_summaries
from dlrover_nb.core.client.past.history_queries import past_jobs
from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.driver.deadline_outlook import deadline_outlook
from dlrover_nb.core.errors import (
    BackendError,
    CheckpointError,
    DlroverError,
    InvalidValueError,
    NotFoundError,
)
from dlrover_nb.core.host_use import host_use
from dlrover_nb.core.rundir.last_share import last_share
from dlrover_nb.core.rundir.locate import new_run_folder, newest_runs
from dlrover_nb.core.rundir.origin import origin_of, trained_encoding
from dlrover_nb.core.rundir.orphans import sweep
from dlrover_nb.core.rundir.pruning import is_held, remove_released
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job
from dlrover_nb.core.structs.job.fixed_roles import check_job_fits
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.views.summary import JobSummary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

logger = logging.getLogger(__name__)

SUMMARY_LIMIT_S = 2.0  # a training master answers in milliseconds
END_LIMIT_S = 60.0  # of a master that puts an ended job away: its nodes, its journal


def _nothing(_folder: Path) -> None:
    """Write nothing."""


class LocalCluster(OfThisAccount):
    """The user's own machine; fits `core.client.cluster.Cluster`.

    Parameters
    ----------
    cpus
        Cores that each job may use; None: all that this process may use.
    """

    def __init__(self, cpus: float | None = None) -> None:
        self._cpus = cpus
        self._capacity = machine(cpus)

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return False

    @property
    def description(self) -> str:
        """One line: kind and capacity."""
        capacity = self._capacity
        return (
            f"processes of this machine: {capacity.total_cpu:g} cores, "
            f"{capacity.total_memory_mib / 1024:.1f} GiB"
        )

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        return self._capacity

    def load(self) -> ClusterLoad:
        """Return what this machine has, who holds it, and what is used; see `Cluster.load`."""
        return _load(self._capacity, jobs_folder())

    def standing(self) -> ClusterAccess:
        """Return no restrictions: the user has all rights over own processes."""
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return once its master has begun it; see `Cluster.submit`."""
        if spec.foreign is not None:
            return self._submit_programs(spec, model=model, data=data)
        from dlrover_nb.core.runtime.node.preflight import validate_job  # noqa: PLC0415 - a submit alone reads data

        prepared = validate_job(spec, model=model, data=data, trained=trained_encoding(spec))
        spec = prepared.spec
        origin_of(spec, prepared.features)  # its errors, before anything is made
        if spec.sync is Sync.ALLREDUCE:
            from dlrover_nb.core.runtime.allreduce.job import with_workers  # noqa: PLC0415 - few jobs are

            spec = with_workers(spec, prepared.features, python=sys.executable)
        folder = self._start(self._submission(spec, prepared.features), prepared.write)
        return JobHandle(
            spec.name,
            LocalLink(spec.name, folder),
            schema=prepared.schema,
            bounds=completed(spec.bounds, self._capacity, spec.plan, most_workers=spec.step_batches),
            deadline=deadline_outlook(spec, prepared.features, self._capacity, folder),
        )

    def _submit_programs(self, spec: JobSpec, *, model: object, data: object) -> JobHandle:
        """Start an external job, whose programs run where this process does."""
        # few jobs are external, and their masters' modules are many
        from dlrover_nb.core.backends.programs.program_files import check_commands, note_placement  # noqa: PLC0415
        from dlrover_nb.core.master.external.submitted import NO_FEATURES, checked  # noqa: PLC0415

        spec = checked(spec, model=model, data=data)
        check_commands(spec)
        note_placement(spec)
        folder = self._start(self._submission(spec, NO_FEATURES))
        bounds = completed(spec.bounds, self._capacity, spec.plan, most_workers=spec.step_batches)
        return JobHandle(spec.name, LocalLink(spec.name, folder), bounds=bounds)

    def _submission(self, spec: JobSpec, features: FeatureSpec) -> Submission:
        if spec.foreign is None:
            return Submission(spec, features, self._cpus)
        return Submission(spec, features, self._cpus, str(Path.cwd()), secrets.token_urlsafe(32))

    def _start(self, submission: Submission, write: Callable[[Path], None] = _nothing) -> Path:
        """Make the run folder, let `write` fill it, and start the master; return the folder."""
        spec = submission.spec
        sweep(jobs_folder())
        check_job_fits(spec, self._capacity)
        self._make_room_for(spec.name)
        folder = new_run_folder(spec.name)
        with writing_to(folder):
            write(folder)
            write_submission(folder, submission)
        try:
            start_master(spec.name, folder)
        except DlroverError:
            if not is_held(folder):  # the job never began: its name stays free
                shutil.rmtree(folder, ignore_errors=True)
            raise
        return folder

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: those with a master, those whose master was killed, past ones."""
        runs = runs_here()
        live = {summary.name: summary for summary in _live(runs)}
        for name, folder in runs.items():
            if name not in live and not has_ended(folder):
                live[name] = _without_answer(name, folder)
        past = [summary for summary in past_jobs() if summary.name not in live]
        return tuple(sorted([*live.values(), *past], key=lambda s: s.started_at_s, reverse=True))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer at once, newest first."""
        return _live(runs_here())

    def job(self, name: str) -> JobHandle:
        """Find a job by name: its newest run, ended ones included."""
        runs = runs_here()
        if name not in runs:
            raise NotFoundError(no_job(name, "on this machine", runs, {job.name for job in past_jobs()}))
        return self._handle(name, runs[name])

    def delete(self, name: str, *, force: bool = False) -> str:
        """Remove a job: its processes and its run folders; see `Cluster.delete`."""
        folder = runs_here().get(name)
        if folder is not None and not has_ended(folder):
            self._stop_to_delete(name, folder, force=force)
        if folder is not None:
            _end_master(folder)
        n = remove_released(jobs_folder(), name)
        if not n:
            self.job(name)  # raises that there is none
        return f"job {name} is deleted, with {n} run folder{'s' * (n != 1)}; its history is kept"

    def _stop_to_delete(self, name: str, folder: Path, *, force: bool) -> None:
        """Stop a job; by force also one that cannot be continued, whose nodes are ended instead."""
        handle = self._handle(name, folder)
        try:
            phase = handle.snapshot().phase
        except DlroverError as error:
            if _is_alive(folder):
                raise
            if not force:
                raise BackendError(
                    f"{error}; `delete {name} --force` removes the job without asking its master"
                ) from error
            _end_nodes(folder)
            return
        if not phase.is_final and not force:
            raise InvalidValueError(still_runs(name, phase))
        handle.stop(why="deleted")

    def shutdown(self, *, force: bool = False) -> str:
        """End all masters, those of ended jobs too; refused while jobs run, unless forced."""
        over = {summary.name for summary in self.live_jobs() if summary.phase.is_final}
        running = {  # also those whose master is too busy to answer at once
            name: folder
            for name, folder in runs_here().items()
            if name not in over and _goes_on(folder) and not has_ended(folder)
        }
        if running and not force:
            raise InvalidValueError(
                f"{len(running)} job(s) still run here ({', '.join(running)}); "
                "stop them first, or shutdown --force to end them"
            )
        for name, folder in running.items():
            self._stop_by_force(name, folder)
        for folder in runs_here().values():
            _end_master(folder)
        sweep(jobs_folder())
        return "no jobs are running on this machine any more" + f": {and_list(running)} ended" * bool(running)

    def _stop_by_force(self, name: str, folder: Path) -> None:
        """Stop a job; where its master does not answer, end that and the nodes."""
        try:
            self._handle(name, folder).stop(why="the cluster was shut down")
        except BackendError as error:
            logger.warning("job %s is ended without an answer of its master: %s", name, error)
            _end_master(folder)
            _end_nodes(folder)

    def _handle(self, name: str, folder: Path) -> JobHandle:
        return JobHandle(name, LocalLink(name, folder))

    def _make_room_for(self, name: str) -> None:
        """Refuse the name of an unfinished job; end the master of an ended one."""
        folder = runs_here().get(name)
        if folder is None:
            return
        if not has_ended(folder):
            phase = self._handle(name, folder).snapshot().phase
            if not phase.is_final:
                raise InvalidValueError(name_taken(name, phase))
        _end_master(folder)


def connect_local(cpus: float | None = None) -> LocalCluster:
    """Return this machine as a cluster.

    Parameters
    ----------
    cpus
        Cores that each job may use; None: all.

    Raises
    ------
    InvalidValueError
        When `cpus` is not a positive number.
    """
    return LocalCluster(cpus)


def runs_here() -> dict[str, Path]:
    """Return the newest run folder of each local job."""
    return newest_runs(jobs_folder(), SUBMISSION)


def _live(runs: Mapping[str, Path]) -> tuple[JobSummary, ...]:
    """Return the jobs among these whose masters answer at once, newest first."""
    links = {
        name: LocalLink(name, folder, limit_s=SUMMARY_LIMIT_S)
        for name, folder in runs.items()
        if _is_alive(folder)
    }
    return live_summaries(links)


def _is_alive(folder: Path) -> bool:
    record = read_master(folder)
    return record is not None and record.is_alive


def _goes_on(folder: Path) -> bool:
    """Whether a job has a master, or gets one without a client."""
    supervisor = read_supervisor(folder)
    return _is_alive(folder) or (supervisor is not None and supervisor.is_alive)


def _without_answer(name: str, folder: Path) -> JobSummary:
    """Return the line of a job whose master does not answer, or was killed."""
    late = f"not within {SUMMARY_LIMIT_S:g} s; its master is busy or stopped"
    why = late if _is_alive(folder) else _why_without(name, folder)
    began_s, done = folder.stat().st_mtime, last_share(folder)
    return JobSummary(name, JobPhase.STARTING, "", began_s, None, 0.0, done, None, live=False, message=why)


def _why_without(name: str, folder: Path) -> str:
    """Return why a job has no master now, and what to do."""
    supervisor = read_supervisor(folder)
    if supervisor is None or not supervisor.words:
        return f"its master was killed; attach {name}"
    if supervisor.is_alive:
        return supervisor.words
    return f"{supervisor.words}; see {folder / LOG}, and attach {name} to try once more"


def _end_nodes(folder: Path) -> None:
    """End what a killed master left running: nodes, or programs of an external job."""
    # few masters are lost for good, and the modules of programs are many
    from dlrover_nb.core.backends.local.programs import LocalPrograms  # noqa: PLC0415 - see above

    backend = LocalBackend(folder, outlive=True)
    with contextlib.suppress(CheckpointError):  # damaged: that may be why it cannot be continued
        if read_submission(folder).spec.foreign is not None:
            backend = LocalPrograms(folder, token="", certificate="")
    backend.adopt({})  # it starts nothing


def _end_master(folder: Path) -> None:
    """End the master of an ended job, which only answers calls, or what would start a killed one again."""
    record = read_master(folder)
    if record is None or not record.is_alive:
        end_supervisor(folder)
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(record.pid, signal.SIGTERM)
    end_s = time.monotonic() + END_LIMIT_S
    while record.is_alive:
        if time.monotonic() > end_s:
            raise BackendError(f"the master in {folder} (process {record.pid}) does not end; try again")
        time.sleep(0.02)


def _load(capacity: Capacity, jobs: Path) -> ClusterLoad:
    """Return what nodes of local jobs hold of this machine's capacity, and what all its processes use.

    No scheduler divides this machine, so others hold nothing here; what they use is in `used`.
    """
    has = Amount(capacity.total_cpu, float(capacity.total_memory_mib))
    job_loads = by_job((c.spec.name, Amount(c.cpu, float(c.memory_mib))) for c in running_nodes(jobs))
    name = socket.gethostname()
    return ClusterLoad((MachineLoad(name, has, job_loads, used=host_use()),), place=f"local {name}")
