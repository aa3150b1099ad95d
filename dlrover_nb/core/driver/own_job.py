"""Composes the loop of an own job: nodes of ours, over the wire, with a write-ahead log.

The master's state is in the write-ahead log before an order is carried out, and the controller's state is in
the journal. So after a kill another driver continues in the same run folder, at the same endpoint, with the
same nodes (`resume`).
"""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.driver.checkpoint_thread import CheckpointThread
from dlrover_nb.core.driver.history_writer import examples
from dlrover_nb.core.driver.job_start import InitialPlan, initial_plan, submitted, traits_of
from dlrover_nb.core.driver.loop import JobLoop, opened
from dlrover_nb.core.driver.own_actions import OwnActions, WriteAheadPersistence
from dlrover_nb.core.driver.own_inputs import WireInputs
from dlrover_nb.core.driver.parts import Parts
from dlrover_nb.core.driver.recorded_controller import RecordedController, unheard
from dlrover_nb.core.driver.transport import MasterSocket
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.redaction import redact
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.job_file import (
    JobFile,
    hold_folder,
    listen_again,
    read_job,
    read_write_ahead_log,
    write_job,
)
from dlrover_nb.core.rundir.node_logs import NodeLogs
from dlrover_nb.core.rundir.origin import origin_of
from dlrover_nb.core.runtime.flash import MemoryClaim
from dlrover_nb.core.runtime.master import JobMaster
from dlrover_nb.core.runtime.orders import Action
from dlrover_nb.core.runtime.recovery_record import latest_s
from dlrover_nb.core.runtime.wire import JobKeys, new_keys
from dlrover_nb.core.runtime.write_ahead_log import read_back
from dlrover_nb.core.structs.capacity import check_fits
from dlrover_nb.core.structs.secrets import secret_values
from dlrover_nb.core.structs.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.clock import Clock, SystemClock
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.job import FeatureSpec, JobSpec

OwnJob = JobLoop[Action]


def begin(  # noqa: PLR0913 - parts of a job, all but the first three by keyword
    spec: JobSpec,
    features: FeatureSpec,
    backend: Backend,
    *,
    folder: Path,
    history_url: str | None,
    clock: SystemClock,
    keys: JobKeys | None = None,
    on_planned: Callable[[JobSpec, FeatureSpec], None] = lambda _spec, _features: None,
) -> OwnJob:
    """Return the loop of a new job; its `start` lets it run.

    Parameters
    ----------
    spec, features
        The job, and the encoding of its rows.
    backend
        Where nodes run; the loop closes it at the end of the job.
    folder
        The job's run folder, made if missing, closed to other users.
    history_url
        Of the history; None for the user's own file.
    clock
        The time.
    keys
        Those that the nodes have already; None: made here.
    on_planned
        Called with the job on its first plan and the encoding of its rows, before anything is written.

    Raises
    ------
    CapacityError
        When the first plan does not fit.
    BackendError, InvalidValueError
        When the run folder cannot be written to, the master's endpoint cannot be bound, for example in a
        folder that others may enter, or another master of the job is alive.
    NotFoundError, CheckpointError, InvalidValueError
        As `rundir.origin.origin_of`, of a job that begins from a checkpoint.
    """
    capacity, at_s = backend.capacity(), clock.now_s()
    plan = initial_plan(spec, traits_of(spec, features, folder), capacity, examples(history_url))
    check_fits(plan.spec.plan, capacity)
    keys = keys or new_keys()
    with contextlib.ExitStack() as held:
        _hold(plan.spec, folder, held)
        origin = origin_of(plan.spec, features, folder=folder)
        features = features if origin is None else origin.features
        on_planned(plan.spec, features)
        socket = _bound(backend.listen(), folder, keys, held)
        began_from = None if origin is None else origin.began_from
        job = JobFile(
            plan.spec, features, at_s, socket.endpoint, keys.public, keys.secret, began_from, clock.anchor
        )
        write_job(folder, job)
        master = JobMaster(
            plan.spec,
            features,
            capacity,
            folder=str(folder),
            evaluate=ScoreSums.evaluate,
            origin=None if origin is None else origin.checkpoint,
        )
        recorded = RecordedController(plan.spec.name, folder, history_url)
        held.callback(recorded.close)
        parts = _parts(
            job,
            folder,
            backend,
            capacity=capacity,
            master=master,
            socket=socket,
            recorded=recorded,
            logs=_logs(job, folder),
            clock=clock,
            held=held,
        )
        return opened(parts, submitted(plan, capacity, clock.now_s(), folder=str(folder)), master.start, held)


def resume(
    backend: Backend,
    *,
    folder: Path,
    history_url: str | None,
    clock: SystemClock,
    on_progress: Callable[[str], None] = unheard,
) -> OwnJob:
    """Return the loop that continues the job of a run folder, whose master died; `start` lets it run.

    The endpoint is bound first: reconnected nodes wait as long as needed. Where this host has another
    address, nodes get the new endpoint from the backend.

    Parameters
    ----------
    on_progress
        Called with what is done until the loop is returned, in words.

    Raises
    ------
    CheckpointError
        When the folder is of no job, or holds no state to continue from.
    BackendError, InvalidValueError
        As for `begin`.
    """
    job = read_job(folder)
    spec, features, capacity = job.spec, job.features, backend.capacity()
    with contextlib.ExitStack() as held:
        _hold(spec, folder, held)
        master = JobMaster(spec, features, capacity, folder=str(folder), evaluate=ScoreSums.evaluate)
        record, kept = read_back(master, read_write_ahead_log(folder))
        keys = JobKeys(job.public_key, job.secret_key)
        socket = _bound(listen_again(job, backend.listen()), folder, keys, held)
        recorded = RecordedController(spec.name, folder, history_url)
        held.callback(recorded.close)
        recorded.replay(on_progress)
        clock = clock.continued(job.anchor, max(job.started_at_s, recorded.at_s, latest_s(record)))
        if (job.endpoint, job.anchor) != (socket.endpoint, clock.anchor):
            job = replace(job, endpoint=socket.endpoint, anchor=clock.anchor)
            write_job(folder, job)
        nodes, logs = {node.id: (node.cpu, node.memory_mib) for node in record.nodes}, _logs(job, folder)
        logs.reload(nodes)
        backend.adopt(nodes)
        backend.set_master_endpoint(
            socket.endpoint
        )  # also when unchanged: an earlier master may have died before it
        parts = _parts(
            job,
            folder,
            backend,
            capacity=capacity,
            master=master,
            socket=socket,
            recorded=recorded,
            logs=logs,
            clock=clock,
            held=held,
        )
        fact = submitted(
            InitialPlan(spec, traits_of(spec, features, folder), None, ""),
            capacity,
            clock.now_s(),
            folder=str(folder),
        )
        return opened(parts, fact, lambda at_s: master.resume(record, kept, at_s), held)


def _hold(spec: JobSpec, folder: Path, held: contextlib.ExitStack) -> None:
    hold_folder(folder, held)
    held.callback(MemoryClaim(spec.name, folder).close)


def _bound(listen: str, folder: Path, keys: JobKeys, held: contextlib.ExitStack) -> MasterSocket:
    socket = MasterSocket(listen, folder, keys)
    held.callback(socket.close)
    return socket


def _logs(job: JobFile, folder: Path) -> NodeLogs:
    return NodeLogs(folder, secrets=(job.secret_key, job.public_key, *secret_values(job.spec)))


def _parts(  # noqa: PLR0913 - as `begin`
    job: JobFile,
    folder: Path,
    backend: Backend,
    *,
    capacity: Capacity,
    master: JobMaster,
    socket: MasterSocket,
    recorded: RecordedController,
    logs: NodeLogs,
    clock: Clock,
    held: contextlib.ExitStack,
) -> Parts[Action]:
    spec = job.spec
    data = replace(spec.data, path=redact(spec.data.path))
    kept = CheckpointFolder(folder, spec.checkpoint_url, trained=Trained(spec.model, data, job.features))
    checkpoints = CheckpointThread(kept, socket.wake)
    held.callback(checkpoints.close)
    actions = OwnActions(
        job, folder, master=master, backend=backend, socket=socket, checkpoints=checkpoints, clock=clock
    )
    return Parts(
        spec=job.spec,
        capacity=capacity,
        started_at_s=job.started_at_s,
        folder=folder,
        backend=backend,
        master=master,
        inputs=WireInputs(
            job.spec.name,
            folder,
            master=master,
            socket=socket,
            logs=logs,
            told=actions.told,
            clock=clock,
        ),
        persistence=WriteAheadPersistence(master, folder),
        perform=actions.perform,
        recorded=recorded,
        clock=clock,
        began_from=job.began_from,
    )
