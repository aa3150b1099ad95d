"""Client side of a Ray cluster: join or start it, submit jobs, find them by name.

Jobs are named, detached actors in one namespace, so any process that reaches the same Ray finds them.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import secrets
import sys
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Any

import ray
from ray._private import auto_init_hook, ray_constants
from ray._private.services import resolve_ip_for_localhost
from ray._private.worker import global_worker
from ray._raylet import Config  # type: ignore[attr-defined]  # compiled: it carries no types

from dlrover_nb.core.backends.ray.backend import RayBackend, clear_left
from dlrover_nb.core.backends.ray.head import (
    LOOPBACK,
    HeadRecord,
    ray_environment,
    running_head,
    start_head,
    stop_head,
)
from dlrover_nb.core.backends.ray.load import ray_capacity, ray_load
from dlrover_nb.core.backends.ray.master import (
    RayLink,
    RayMaster,
    RayProgramsMaster,
    create_master,
    starts_as_submitted,
)
from dlrover_nb.core.backends.ray.near_masters import write_head
from dlrover_nb.core.backends.ray.ray_jobs import SeesRayJobs
from dlrover_nb.core.backends.ray.reach import NAMESPACE, check_reachable, silence
from dlrover_nb.core.backends.ray.summaries import (
    SummaryPoll,
    await_name_free,
    began_at_s,
    job_names,
    master_of,
)
from dlrover_nb.core.basics.lists import and_list
from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.cluster import name_taken, no_job, still_runs
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.client.past.history_queries import past_jobs
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.driver.deadline_outlook import deadline_outlook
from dlrover_nb.core.errors import AwayError, BackendError, DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.rundir.last_share import last_share
from dlrover_nb.core.rundir.locate import new_run_folder
from dlrover_nb.core.rundir.origin import origin_of, trained_encoding
from dlrover_nb.core.rundir.orphans import sweep
from dlrover_nb.core.rundir.pruning import remove_released
from dlrover_nb.core.structs.cluster.cluster_access import ClusterAccess
from dlrover_nb.core.structs.job.fixed_roles import check_job_fits
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.default_bounds import completed
from dlrover_nb.core.structs.views.summary import JobSummary, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.backends.programs.running import ProgramSetup
    from dlrover_nb.core.structs.cluster.cluster_load import ClusterLoad
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

logger = logging.getLogger(__name__)

_ENABLED_AS_IMPORTED = ray_constants.ENABLE_RAY_CLUSTER  # before our local head's settings

RECONNECT_S = 10_000_000  # Ray ends a process that lost its cluster for so long: never a user's kernel


class RayCluster(SeesRayJobs):
    """The Ray that this process is connected to.

    Parameters
    ----------
    address
        Its address, for display.
    head
        The local head, when it is ours; None for a cluster of others.
    """

    def __init__(self, address: str, head: HeadRecord | None) -> None:
        self._address = address
        self._head, self.has_dashboard = head, head is None
        self.rollcall = SummaryPoll(master_of)

    @property
    def simulated(self) -> bool:
        """Whether the cluster is simulated."""
        return False

    @property
    def description(self) -> str:
        """One line: kind, address and capacity."""
        kind = "local Ray (our own head)" if self._head else "Ray cluster"
        capacity = self.capacity()
        machines = sum(shape.count for shape in capacity.shapes)
        return (
            f"{kind} at {self._address}: {machines} machine{'s' * (machines != 1)}, "
            f"{capacity.total_cpu:g} cores, {capacity.total_memory_mib / 1024:.1f} GiB"
        )

    def capacity(self) -> Capacity:
        """Return the capacity for jobs."""
        return ray_capacity()

    def load(self) -> ClusterLoad:
        """Return what each machine has, who holds it, and what is used; see `Cluster.load`."""
        return ray_load(f"ray {'of ' + gethostname() if self._head else self._address}")

    def standing(self) -> ClusterAccess:
        """Return no restrictions: everyone who reaches it has all rights."""
        return ClusterAccess()

    def submit(self, spec: JobSpec, *, model: object = None, data: object = None) -> JobHandle:
        """Start a job and return at once; see `Cluster.submit`."""
        if spec.foreign is not None:
            return self._submit_programs(spec, model=model, data=data)
        from dlrover_nb.core.runtime.node.preflight import validate_job  # noqa: PLC0415 - a submit alone reads data

        with self._first_nodes(spec) as nodes:
            prepared = validate_job(spec, model=model, data=data, trained=trained_encoding(spec))
            if nodes is not None and not _starts_alike(prepared.spec, spec):
                nodes.close()
            spec, features = prepared.spec, prepared.features
            origin_of(spec, features)  # its errors, before anything is made
            if spec.sync is Sync.ALLREDUCE:
                from dlrover_nb.core.runtime.allreduce.job import with_workers  # noqa: PLC0415 - few jobs are

                spec = with_workers(spec, features, python=sys.executable)
            folder, capacity = self._new_folder(spec, is_free=nodes is not None)
            with writing_to(folder):
                prepared.write(folder)
        encoded = to_json(spec), to_json(features), str(folder)
        if spec.foreign is not None:
            actor = create_master(RayProgramsMaster, spec.name, *encoded, self._setup(spec))
        else:
            actor = create_master(RayMaster, spec.name, *encoded, one_host=self._one_host())
        bounds = completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches)
        return JobHandle(
            spec.name,
            RayLink(spec.name, actor),
            schema=prepared.schema,
            bounds=bounds,
            deadline=deadline_outlook(spec, features, capacity, folder),
        )

    @contextlib.contextmanager
    def _first_nodes(self, spec: JobSpec) -> Iterator[RayBackend | None]:
        """Request a job's first nodes before its data are read; end them where that fails.

        Their processes import meanwhile, and its master takes them (`RayBackend.prepare`). None: the name is
        in use, or another plan may come of it. To let Ray start the master's process early too was rejected:
        Ray often gives the master another one.
        """
        if not _starts_alike(spec, spec) or spec.name in job_names():
            yield None
            return
        clear_left(spec.name)
        nodes = RayBackend(spec.name, one_host=self._one_host())
        nodes.prepare(spec.plan)
        try:
            yield nodes
        except BaseException:
            nodes.close()
            raise

    def _submit_programs(self, spec: JobSpec, *, model: object, data: object) -> JobHandle:
        """Start an external job; on this machine its programs run as this process would."""
        from dlrover_nb.core.master.external.submitted import NO_FEATURES, checked  # noqa: PLC0415 - few jobs are external

        spec = checked(spec, model=model, data=data)
        setup = self._setup(spec)
        folder, capacity = self._new_folder(spec)
        encoded = to_json(spec), to_json(NO_FEATURES), str(folder)
        actor = create_master(RayProgramsMaster, spec.name, *encoded, setup)
        bounds = completed(spec.bounds, capacity, spec.plan, most_workers=spec.step_batches)
        return JobHandle(spec.name, RayLink(spec.name, actor), bounds=bounds)

    def _setup(self, spec: JobSpec) -> ProgramSetup:
        """Return how programs are run: on this machine as this process would run them."""
        from dlrover_nb.core.backends.programs.program_files import note_placement  # noqa: PLC0415 - as above
        from dlrover_nb.core.backends.programs.running import ProgramSetup  # noqa: PLC0415 - as above

        here = (True, str(Path.cwd()), _inherited(spec)) if self._one_host() else ()
        note_placement(spec, is_one=bool(here))
        return ProgramSetup(secrets.token_urlsafe(32), *here)

    def _new_folder(self, spec: JobSpec, *, is_free: bool = False) -> tuple[Path, Capacity]:
        """Return the run folder of a job that fits and may have its name, and the capacity.

        Where the name `is_free`, what belongs to it are the first nodes of this job.
        """
        sweep(jobs_folder())
        capacity = self.capacity()
        check_job_fits(spec, capacity)
        if not is_free:
            self._make_room_for(spec.name)
        folder = new_run_folder(spec.name)
        if self._head is not None:
            with writing_to(folder):
                write_head(folder, self._head)
        return folder, capacity

    def jobs(self) -> tuple[JobSummary, ...]:
        """Return all jobs, newest first: those with a live master, then those only in the history."""
        answers, silent = {summary.name: summary for summary in self.live_jobs()}, self.rollcall.silent
        live = [
            answers.get(name)
            or (_without_answer(name, actor, JobPhase.STARTING, silent[name]) if name in silent else None)
            or _summary(self._handle(name, actor), actor)
            for name, actor in _masters()
        ]
        names = {summary.name for summary in live}
        past = [summary for summary in past_jobs() if summary.name not in names]
        return tuple(sorted([*live, *past], key=lambda s: s.started_at_s, reverse=True))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        """Return the jobs whose masters answer at once, newest first."""
        summaries = self.rollcall.call(job_names())
        return tuple(sorted(summaries, key=lambda s: s.started_at_s, reverse=True))

    def job(self, name: str) -> JobHandle:
        """Find a job by name; for one only in the history, the error says how to read it."""
        names = job_names()
        if name not in names:
            raise NotFoundError(no_job(name, f"at {self._address}", names, {job.name for job in past_jobs()}))
        return self._handle(name, master_of(name))

    def link(self, name: str) -> RayLink:
        """Return the way to a job's master through Ray."""
        return RayLink(name, master_of(name))

    def delete(self, name: str, *, force: bool = False) -> str:
        """Remove a job: its master, its run folders on this machine; see `Cluster.delete`."""
        is_here = name in job_names()
        if is_here:
            handle = self._handle(name, master_of(name))
            with _gone_is_over(silent_too=force):
                phase = handle.snapshot().phase
                if not phase.is_final and not force:
                    raise InvalidValueError(still_runs(name, phase))
                handle.stop(why="deleted")
            self._let_go(name)
        n = remove_released(jobs_folder(), name)
        if not (is_here or n):
            self.job(name)  # raises that there is none, and names the nearest
        return f"job {name} is deleted, with {n} run folder{'s' * (n != 1)}; its history is kept"

    def shutdown(self, *, force: bool = False) -> str:
        """End the local head, or disconnect from a cluster that is not ours."""
        if self._head is None:
            _leave()
            return f"disconnected from {self._address}; the cluster and its jobs keep running"
        running = self._running()
        if running and not force:
            raise InvalidValueError(
                f"{len(running)} job(s) still run here ({', '.join(running)}); "
                "stop them first, or shutdown --force to end them with Ray"
            )
        _leave()
        stop_head()
        sweep(jobs_folder())
        return f"local Ray at {self._address} has ended" + (
            f", and with it {and_list(running)}" * bool(running)
        )

    def _running(self) -> list[str]:
        """Return the names of unfinished jobs; none when Ray ends meanwhile."""
        try:
            return [name for name, actor in _masters() if not _is_final(self._handle(name, actor))]
        except BackendError as error:
            logger.warning("the jobs here cannot be listed: %s", error)
            return []

    def _handle(self, name: str, actor: Any) -> JobHandle:  # noqa: ANN401 - Ray's handle has no public type
        return JobHandle(name, RayLink(name, actor))

    def _one_host(self) -> bool:
        return self._head is not None

    def _make_room_for(self, name: str) -> None:
        """Refuse the name of a running job; end an ended job's master, as the history keeps its results."""
        if name not in job_names():
            clear_left(name)
            return
        handle = self._handle(name, master_of(name))
        with _gone_is_over():
            phase = handle.snapshot().phase
            if not phase.is_final:
                raise InvalidValueError(name_taken(name, phase))
        self._let_go(name)

    def _let_go(self, name: str) -> None:
        """End a job's master and what the job left on the cluster."""
        with contextlib.suppress(NotFoundError):
            ray.kill(master_of(name))
        clear_left(name)
        await_name_free(name)


def connect_ray(address: str | None = None, *, cpus: float | None = None) -> RayCluster:
    """Join the Ray at `address`; without one join this user's local head, or start it.

    Parameters
    ----------
    address
        ``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``; None for the local head.
    cpus
        Cores that a local head offers when it is started.

    Raises
    ------
    BackendError
        When there is no Ray at the address, or the local one does not start.
    """
    if address is None:
        head = start_head(cpus=cpus)
        if cpus is not None and head.cpus != cpus:
            logger.warning(
                "the local Ray runs already, with %g cores; shutdown first to change that", head.cpus
            )
        _apply_local_settings()
        _init(head.address, local=True)
        atexit.register(_leave)  # before Ray's own exit, which first sleeps for half a second
        return RayCluster(head.address, head)
    head_here = running_head()
    if head_here is not None and address == head_here.address:
        return connect_ray(None)
    _drop_local_settings()
    if address != "auto" and (why := silence(_where(address))) is not None:
        if ray.is_initialized():
            _apply_local_settings()  # what this process is connected to stays
        raise BackendError(f"no Ray at {address}: {why}; give HOST:PORT of a cluster's head")
    _init(address, local=False)
    return RayCluster(address, None)


def _starts_alike(spec: JobSpec, submitted: JobSpec) -> bool:
    """Whether a job's first nodes are certainly those of the plan that was submitted."""
    is_ours = spec.foreign is None and spec.sync is not Sync.ALLREDUCE
    return is_ours and spec.plan == submitted.plan and starts_as_submitted(spec)


def _where(address: str) -> str:
    """Return ``HOST:PORT`` as Ray understands the address: loopback is this machine's outside to it."""
    if address.startswith("ray://"):
        return address.removeprefix("ray://")
    host, colon, port = address.rpartition(":")
    return f"{resolve_ip_for_localhost(host)}{colon}{port}" if host else address


def _apply_local_settings() -> None:
    """Make this process a client of the private head; Ray read both settings when it was imported."""
    os.environ.update(ray_environment())
    ray_constants.ENABLE_RAY_CLUSTER = False


def _drop_local_settings() -> None:
    """Undo `_apply_local_settings`: another cluster has a token of its own, or none."""
    for key, value in ray_environment().items():
        if os.environ.get(key) == value:
            del os.environ[key]
    ray_constants.ENABLE_RAY_CLUSTER = _ENABLED_AS_IMPORTED


def _leave() -> None:
    """Disconnect; if Ray has ended, leave its client's threads, which may wait for it forever."""
    if not _is_reachable():
        for thread in ("listener_thread", "logger_thread"):
            vars(global_worker).pop(thread, None)
    ray.shutdown()


def _init(address: str, *, local: bool) -> None:
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", str(RECONNECT_S))
    auto_init_hook.enable_auto_connect = False  # a call after a shutdown must not start a Ray by itself
    Config.initialize("")
    if ray.is_initialized() and not _is_reachable():
        _leave()  # the previous cluster has ended
    if ray.is_initialized():
        if _same_cluster(address):
            return
        raise BackendError(
            f"this process is connected to another Ray ({ray.get_runtime_context().gcs_address}); "
            "call ray.shutdown() first, or connect to that one by its address"
        )
    tell(f"the Ray at {address} to answer")
    options: dict[str, Any] = {"_node_ip_address": LOOPBACK} if local else {}
    try:
        ray.init(
            address=address,
            namespace=NAMESPACE,
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.ERROR,
            **options,
        )
    except Exception as error:
        # Ray raises a dozen unrelated types here, all of which mean the same to the user
        raise BackendError(
            f"no Ray at {address}: {str(error).splitlines()[0] if str(error) else error!r}"
        ) from error


def _same_cluster(address: str) -> bool:
    return address in {"auto", ray.get_runtime_context().gcs_address}


def _inherited(spec: JobSpec) -> dict[str, str]:
    """Return the variables of programs on this machine: those of this process; refuse a missing program."""
    from dlrover_nb.core.backends.programs.program_files import check_commands  # noqa: PLC0415 - as above

    check_commands(spec)
    ours = ray_environment()
    return {key: value for key, value in os.environ.items() if ours.get(key) != value}


def _is_reachable() -> bool:
    try:
        check_reachable()
    except BackendError:
        return False
    return True


def _is_final(handle: JobHandle) -> bool:
    try:
        return handle.snapshot().phase.is_final
    except AwayError:
        return False
    except BackendError:
        return True


@contextlib.contextmanager
def _gone_is_over(*, silent_too: bool = False) -> Iterator[None]:
    """Let pass that a master is gone, with which its job has ended; a silent one may start, or be busy."""
    try:
        yield
    except AwayError:
        if not silent_too:
            raise
    except BackendError as error:
        logger.info("%s", error)


def _masters() -> list[tuple[str, Any]]:
    """Return all jobs with their masters."""
    masters = []
    for name in job_names():
        with contextlib.suppress(NotFoundError):  # gone since it was listed
            masters.append((name, master_of(name)))
    return masters


def _summary(handle: JobHandle, master: Any) -> JobSummary:  # noqa: ANN401 - Ray's handle has no public type
    """Return the line of a job whose master could not be asked with the others, as one of another release."""
    try:
        return summarize(handle.snapshot())
    except AwayError as error:
        return _without_answer(handle.name, master, JobPhase.STARTING, str(error))
    except DlroverError as error:
        return _without_answer(handle.name, master, JobPhase.FAILED, str(error))


def _without_answer(
    name: str,
    master: Any,  # noqa: ANN401 - as above
    phase: JobPhase,
    why: str,
) -> JobSummary:
    """Return what is known of a job without its master."""
    began_s = began_at_s(master)
    done = last_share(name, began_s)
    return JobSummary(name, phase, "", began_s, None, 0.0, done, None, live=False, message=why)
