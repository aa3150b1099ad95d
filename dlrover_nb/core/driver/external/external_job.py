"""Composes the loop of an external job: external programs in pods of ours.

It has the same controller, journal, history and snapshots as an own job, so that views, magics and decisions
do not differ. It has no wire: programs get only their environment variables, report their steps over HTTP or
in their logs, and may ask for services (`core.structs.wire.services`).

The master's state is written to one small file, and its shards to a log, before an order is carried out: a
driver that replaces this one in another pod continues with the pods that run, and counts nothing twice.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

from dlrover_nb.core.codec import to_checked_json
from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.driver.calls.service_queue import ServiceQueue
from dlrover_nb.core.driver.external.external_actions import ExternalActions, StatePersistence
from dlrover_nb.core.driver.external.external_inputs import ExternalInputs, StepReports
from dlrover_nb.core.driver.external.external_logs import ExternalLogs
from dlrover_nb.core.driver.history_writer import past_costs, speed_of_last_run
from dlrover_nb.core.driver.job_start import traits_of
from dlrover_nb.core.driver.loop.job_loop import JobLoop, opened
from dlrover_nb.core.driver.loop.parts import Parts, restart_of
from dlrover_nb.core.driver.loop.recorded_controller import RecordedController, unheard
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.orders import ExternalAction
from dlrover_nb.core.master.external.submitted import NO_FEATURES, planned
from dlrover_nb.core.rundir.external_state import StateFile
from dlrover_nb.core.rundir.job_file import JobFile, check_new, hold_folder, read_job, write_job
from dlrover_nb.core.rundir.origin import origin_of
from dlrover_nb.core.rundir.shard_log import read_shard_log
from dlrover_nb.core.runtime.allreduce.job import ORIGIN_FILE
from dlrover_nb.core.runtime.checkpoints import MemoryClaim, read_url, run_name
from dlrover_nb.core.structs.job.fixed_roles import capacity_left, check_job_fits, limits_left
from dlrover_nb.core.structs.job.spec_choices import Admission, Sync
from dlrover_nb.core.structs.plan.resources import Need
from dlrover_nb.core.structs.views.events import JobSubmitted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.clock import SystemClock
    from dlrover_nb.core.driver.backend import ExternalBackend
    from dlrover_nb.core.sharding.manifest import Manifest
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity

# Steps of external programs may take many seconds, and logs report several at once: windows wait for them.
SETTINGS = ControllerSettings(max_window_s=120.0, min_window_iter=2)
UNKNOWN_SIZE = 1  # of dense parameters and embeddings: any constant works, as coefficients absorb it

ExternalJob = JobLoop[ExternalAction]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where an external job runs.

    Parameters
    ----------
    folder
        The job's run folder, made if missing.
    history_url
        Of the history; None for the user's own file.
    clock
        The time.
    url
        To which programs report their steps, as reached from their pods.
    reports
        The reported steps.
    on_progress
        Called with what is done until a job is continued, in words.
    namespace
        Where it runs, for the audit.
    calls
        Calls of its programs; their HTTP threads wait there.
    features
        Columns of its data, where they are known.
    on_origin
        Called with the encoding of rows and the checkpoint that the job begins from, before any node starts.
    how_ended
        How the master before this one ended, as in `MasterRestart`; empty: nothing is known of one.
    """

    folder: Path
    history_url: str | None
    clock: SystemClock
    url: str
    reports: StepReports
    on_progress: Callable[[str], None] = unheard
    namespace: str = ""
    calls: ServiceQueue = field(default_factory=ServiceQueue)
    features: FeatureSpec = NO_FEATURES
    on_origin: Callable[[FeatureSpec, Manifest], None] = lambda _features, _origin: None
    how_ended: str = ""


Composed: TypeAlias = tuple[ExternalMaster, ExternalLogs, ExternalInputs]
Compose: TypeAlias = "Callable[[JobSpec, Capacity, RecordedController, Surroundings], Composed]"


def begin(spec: JobSpec, backend: ExternalBackend, around: Surroundings) -> ExternalJob:
    """Return the loop of a new job; its `start` lets it run.

    Raises
    ------
    CapacityError, InvalidValueError
        When the first plan does not fit, or is impossible for an external job.
    BackendError
        When the run folder cannot be written to, or another master of the job lives.
    CheckpointError
        When another job had begun in the folder.
    """
    return begin_composed(spec, backend, around, _composing(backend))


def resume(backend: ExternalBackend, around: Surroundings) -> ExternalJob:
    """Return the loop that continues the job of a run folder, whose master died; `start` lets it run.

    Raises
    ------
    CheckpointError
        When the folder is of no job, or holds no state to continue from.
    BackendError
        As for `begin`.
    """
    return resume_composed(backend, around, _composing(backend))


def _composing(backend: ExternalBackend) -> Compose:
    def compose(
        spec: JobSpec, capacity: Capacity, _recorded: RecordedController, around: Surroundings
    ) -> Composed:
        master = ExternalMaster(spec, capacity)
        logs = ExternalLogs(spec, around.folder, lambda: master.told)
        inputs = ExternalInputs(
            master, backend, logs=logs, reports=around.reports, calls=around.calls, clock=around.clock
        )
        return master, logs, inputs

    return compose


def begin_composed(
    spec: JobSpec, backend: ExternalBackend, around: Surroundings, compose: Compose
) -> ExternalJob:
    """Return the loop of a new job of master, logs and inputs that `compose` makes; see `begin`."""
    check_new(around.folder)
    spec, capacity = planned(spec), backend.capacity()
    check_job_fits(spec, capacity)
    clock = around.clock
    with contextlib.ExitStack() as resources:
        _hold(spec, around.folder, resources)
        origin = origin_of(spec, around.features, folder=around.folder)
        features, began_from = around.features, None
        if origin is not None:
            features, began_from = origin.features, origin.began_from
            for url, sha256 in origin.checkpoint.manifest.files:
                read_url(url, sha256)  # here: workers that cannot read it would start again and again
            (around.folder / ORIGIN_FILE).write_bytes(to_checked_json(origin.checkpoint.manifest))
            around.on_origin(features, origin.checkpoint.manifest)
        job = JobFile(spec, features, clock.now_s(), around.url, "", "", began_from, clock.anchor)
        write_job(around.folder, job)
        recorded = _recorded(spec, around, resources)
        master, logs, inputs = compose(spec, capacity, recorded, around)
        parts = _parts(job, backend, around, capacity, recorded, (master, logs, inputs))
        backend.follow_logs(logs.read_ns)
        is_queued = spec.admission is Admission.QUEUE
        usual = speed_of_last_run(around.history_url, spec) if is_queued else None
        submitted = _submitted(parts, _program(job, around.folder))
        submitted = replace(submitted, usual_samples_per_s=usual)
        return opened(parts, submitted, master.start, resources)


def resume_composed(backend: ExternalBackend, around: Surroundings, compose: Compose) -> ExternalJob:
    """Return the loop that continues a job of master, logs and inputs that `compose` makes; see `resume`."""
    job, capacity = read_job(around.folder), backend.capacity()
    job = replace(job, spec=planned(job.spec), endpoint=around.url)
    with contextlib.ExitStack() as resources:
        _hold(job.spec, around.folder, resources)
        saved = StateFile(around.folder).read()
        recorded = _recorded(job.spec, around, resources)
        recorded.replay(around.on_progress)
        clock = around.clock.continued(
            job.anchor, max(job.started_at_s, recorded.at_s, saved.record.latest_s)
        )
        if clock.anchor != job.anchor:
            job = replace(job, anchor=clock.anchor)
            write_job(around.folder, job)
        around = replace(around, clock=clock)
        master, logs, inputs = compose(job.spec, capacity, recorded, around)
        if saved.record.services.has_ledger:
            master.account.adopt(*read_shard_log(around.folder))
        logs.reload([node.id for node in saved.record.nodes], saved.read_ns)
        living = [node for node in saved.record.nodes if not node.is_finished]
        backend.adopt({n.id: Need(n.cpu, n.memory_mib, job.spec.gpu_of(n.role)) for n in living})
        backend.set_master_endpoint(around.url)
        parts = _parts(job, backend, around, capacity, recorded, (master, logs, inputs))
        restart = restart_of(around.how_ended, clock.now_s())
        parts = replace(parts, damage=recorded.losses, restart=restart)
        backend.follow_logs(logs.read_ns)
        program = _program(job, around.folder)
        return opened(
            parts, _submitted(parts, program), lambda at_s: master.resume(saved.record, at_s), resources
        )


def _hold(spec: JobSpec, folder: Path, resources: contextlib.ExitStack) -> None:
    """Hold the run folder, and the shared memory on this host while programs restart."""
    hold_folder(folder, resources)
    resources.callback(MemoryClaim(spec.name, folder).close)


def _recorded(spec: JobSpec, around: Surroundings, resources: contextlib.ExitStack) -> RecordedController:
    recorded = RecordedController(
        spec.name, around.folder, around.history_url, SETTINGS, namespace=around.namespace
    )
    resources.callback(recorded.close)
    return recorded


def _parts(
    job: JobFile,
    backend: ExternalBackend,
    around: Surroundings,
    capacity: Capacity,
    recorded: RecordedController,
    composed: Composed,
) -> Parts[ExternalAction]:
    master, logs, inputs = composed
    master.memory = run_name(job.spec.name, around.folder)
    actions = ExternalActions(
        job,
        around.folder,
        master=master,
        backend=backend,
        calls=around.calls,
        clock=around.clock,
        spent=lambda: recorded.controller.spent,
        batch_costs=past_costs(around.history_url, job.spec, _program(job, around.folder)),
    )
    return Parts(
        spec=job.spec,
        capacity=capacity,
        started_at_s=job.started_at_s,
        folder=around.folder,
        backend=backend,
        master=master,
        inputs=inputs,
        persistence=StatePersistence(master, logs, around.folder),
        perform=actions.perform,
        began_from=job.began_from,
        recorded=recorded,
        clock=around.clock,
    )


def _program(job: JobFile, folder: Path) -> str:
    """Return what a mini-batch of a model of ours computes; empty: its program is the user's."""
    is_ours = job.spec.sync is Sync.ALLREDUCE
    return traits_of(job.spec, job.features, folder).program if is_ours else ""


def _submitted(parts: Parts[ExternalAction], program: str) -> JobSubmitted:
    spec = parts.spec
    assert spec.foreign is not None
    return JobSubmitted(
        at_s=parts.clock.now_s(),
        spec=limits_left(spec),
        capacity=capacity_left(spec, parts.capacity),
        n_sample_total=spec.foreign.n_sample,
        dense_bytes=UNKNOWN_SIZE,
        embedding_dim=UNKNOWN_SIZE,
        defers=True,
        spent=0.0 if parts.began_from is None else parts.began_from.spent,
        program=program,
    )
