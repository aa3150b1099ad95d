"""Composes the loop of an own job: nodes of ours, over the wire, with a write-ahead log.

The master's state is in the write-ahead log before an order is carried out, and the controller's state is in
the journal. So after a kill another driver continues in the same run folder, at the same endpoint, with the
same nodes (`resume`).
"""

from __future__ import annotations

import contextlib
import logging
import platform
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.driver.backend import ResizingBackend
from dlrover_nb.core.driver.history_writer import example_series, examples, past_costs, past_curves
from dlrover_nb.core.driver.job_start import InitialPlan, initial_plan, submitted, traits_of
from dlrover_nb.core.driver.loop.job_loop import JobLoop, opened
from dlrover_nb.core.driver.loop.parts import Parts, restart_of
from dlrover_nb.core.driver.loop.recorded_controller import RecordedController, unheard
from dlrover_nb.core.driver.own.checkpoint_thread import CheckpointThread
from dlrover_nb.core.driver.own.deadline_start import sized_for_deadline
from dlrover_nb.core.driver.own.own_actions import OwnActions, WriteAheadPersistence
from dlrover_nb.core.driver.own.own_inputs import WireInputs
from dlrover_nb.core.driver.own.transport import MasterSocket
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.master.own.going_back import Remains, WayBack, go_back
from dlrover_nb.core.master.own.master import JobMaster
from dlrover_nb.core.master.own.recovery_record import latest_s
from dlrover_nb.core.master.own.state.state import Stage
from dlrover_nb.core.master.own.write_ahead_log import read_back
from dlrover_nb.core.master.shared.orders import Action, Order
from dlrover_nb.core.models.score_sums import ScoreSums
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.job_file import (
    JobFile,
    check_new,
    hold_folder,
    listen_again,
    read_job,
    submit_from,
    write_job,
)
from dlrover_nb.core.rundir.log_file import LogDamage, read_log_file
from dlrover_nb.core.rundir.node_logs import NodeLogs, names_in
from dlrover_nb.core.rundir.origin import origin_of
from dlrover_nb.core.runtime.checkpoints import MemoryClaim
from dlrover_nb.core.runtime.exchange.sockets import JobKeys, new_keys
from dlrover_nb.core.structs.job.secrets import secret_values
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.plan.capacity import check_fits
from dlrover_nb.core.structs.plan.resources import Need
from dlrover_nb.core.warmstart.curves_of_job import curves_of_job

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.clock import SystemClock
    from dlrover_nb.core.driver.backend import Backend
    from dlrover_nb.core.master.own.recovery_record import StateRecord
    from dlrover_nb.core.rundir.origin import Origin
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.views.events import JobSubmitted

logger = logging.getLogger(__name__)

OwnJob = JobLoop[Action]


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What a run is opened with, by its first master and by each one that continues it.

    Parameters
    ----------
    backend
        Where nodes run; the loop closes it at the end of the job.
    folder
        The job's run folder, made if missing, closed to other users.
    history_url
        Of the history; None for the user's own file.
    clock
        The time.
    namespace
        Where it runs, for the audit; empty on clusters without namespaces.
    bind
        Binds the socket that nodes connect to.
    in_threads
        Whether disks are written in threads of their own, so that the loop waits for none.
    how_ended
        How the master before this one ended, as in `MasterRestart`; empty: nothing is known of one.
    """

    backend: Backend
    folder: Path
    _: KW_ONLY
    history_url: str | None
    clock: SystemClock
    namespace: str = ""
    bind: Callable[[str, Path, JobKeys], MasterSocket] = MasterSocket
    in_threads: bool = True
    how_ended: str = ""

    @property
    def cluster(self) -> str:
        """What tells this cluster from others that share the history, as far as a master knows."""
        return f"namespace {self.namespace}" if self.namespace else platform.node()


@dataclass(frozen=True, slots=True)
class _Run:
    """An opened run: its file, its master, and what feeds and records the master."""

    job: JobFile
    capacity: Capacity
    master: JobMaster
    socket: MasterSocket
    recorded: RecordedController
    logs: NodeLogs


def begin(
    spec: JobSpec,
    features: FeatureSpec,
    setup: RunSetup,
    *,
    keys: JobKeys | None = None,
    on_planned: Callable[[JobSpec, FeatureSpec], None] = lambda _spec, _features: None,
) -> OwnJob:
    """Return the loop of a new job; its `start` lets it run.

    Parameters
    ----------
    spec, features, setup
        The job, the encoding of its rows, and what its run is opened with.
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
        As `rundir.origin.origin_of`, of a job that begins from a checkpoint; `CheckpointError` also when
        another job had begun in the folder.
    """
    folder, clock = setup.folder, setup.clock
    check_new(folder)
    capacity, at_s = setup.backend.capacity(), clock.now_s()
    traits = traits_of(spec, features, folder, cluster=setup.cluster)
    plan = initial_plan(spec, traits, capacity, examples(setup.history_url))
    plan = sized_for_deadline(plan, capacity, lambda: example_series(setup.history_url), at_s)
    check_fits(plan.spec.plan, capacity)
    with contextlib.ExitStack() as resources:
        _hold(plan.spec, folder, resources)
        origin = origin_of(plan.spec, features, folder=folder)
        features = features if origin is None else origin.features
        on_planned(plan.spec, features)
        socket = _bound(setup, setup.backend.listen(), keys := keys or new_keys(), resources)
        began_from = None if origin is None else origin.began_from
        job = JobFile(
            plan.spec, features, at_s, socket.endpoint, keys.public, keys.secret, began_from, clock.anchor
        )
        write_job(folder, job)
        master, recorded = _master(job, setup, capacity, origin), _recorded(job.spec, setup, resources)
        parts = _parts(_Run(job, capacity, master, socket, recorded, _logs(job, setup)), setup, resources)
        return opened(parts, _fact(plan, job, capacity, setup), master.start, resources)


def resume(setup: RunSetup, *, on_progress: Callable[[str], None] = unheard) -> OwnJob:
    """Return the loop that continues the job of a run folder, whose master died; `start` lets it run.

    The endpoint is bound first: reconnected nodes wait as long as needed. Where this host has another
    address, nodes get the new endpoint from the backend.

    Parameters
    ----------
    setup
        What the run is opened with; its clock continues the job's time.
    on_progress
        Called with what is done until the loop is returned, in words.

    Raises
    ------
    CheckpointError
        When the folder is of no job, or holds no state to continue from; of a damaged log (`going_back`) when
        there is no whole checkpoint.
    BackendError, InvalidValueError
        As for `begin`.
    """
    folder = setup.folder
    job, capacity = read_job(folder), setup.backend.capacity()
    with contextlib.ExitStack() as resources:
        _hold(job.spec, folder, resources)
        master = _master(job, setup, capacity)
        way = _read_back(job, master, folder)
        record, checkpoints = way.record, way.checkpoints
        keys = JobKeys(job.public_key, job.secret_key)
        socket = _bound(setup, listen_again(job, setup.backend.listen()), keys, resources)
        recorded = _recorded(job.spec, setup, resources)
        recorded.replay(on_progress)
        if way.words:
            _check_goes_on(recorded, record, folder)
        latest = max(job.started_at_s, recorded.at_s, latest_s(record))
        setup = replace(setup, clock=setup.clock.continued(job.anchor, latest))
        job, logs = _moved(job, setup, socket.endpoint), _logs(job, setup)
        _adopt(record, job.spec, setup.backend, logs, socket.endpoint)
        run = _Run(job, capacity, master, socket, recorded, logs)
        parts = replace(
            _parts(run, setup, resources),
            damage="; ".join(filter(None, (way.words, recorded.losses))),
            restart=restart_of(setup.how_ended, setup.clock.now_s()),
        )
        traits = traits_of(job.spec, job.features, folder, cluster=setup.cluster)
        plan = InitialPlan(job.spec, traits, None, "")
        fact = _fact(plan, job, capacity, setup)

        def first(at_s: float) -> tuple[Order, ...]:
            return master.resume(record, checkpoints, at_s) + _plan_of_journal(way, master, recorded, at_s)

        return opened(parts, fact, first, resources)


def _fact(plan: InitialPlan, job: JobFile, capacity: Capacity, setup: RunSetup) -> JobSubmitted:
    fact = submitted(plan, capacity, setup.clock.now_s(), folder=str(setup.folder))
    spent = 0.0 if job.began_from is None else job.began_from.spent
    past = past_curves(setup.history_url, job.spec.model.optimizer)
    curves = curves_of_job(job.spec, plan.traits, past)
    program = plan.traits.program
    return replace(fact, spent=spent, is_endless=job.features.is_stream, curves=curves, program=program)


def _hold(spec: JobSpec, folder: Path, resources: contextlib.ExitStack) -> None:
    hold_folder(folder, resources)
    resources.callback(MemoryClaim(spec.name, folder).close)


def _bound(setup: RunSetup, listen: str, keys: JobKeys, resources: contextlib.ExitStack) -> MasterSocket:
    socket = setup.bind(listen, setup.folder, keys)
    resources.callback(socket.close)
    return socket


def _master(job: JobFile, setup: RunSetup, capacity: Capacity, origin: Origin | None = None) -> JobMaster:
    return JobMaster(
        job.spec,
        job.features,
        capacity,
        folder=str(setup.folder),
        evaluate=ScoreSums.evaluate,
        origin=None if origin is None else origin.checkpoint,
        resizes_in_place=None if isinstance(setup.backend, ResizingBackend) else False,
    )


def _recorded(spec: JobSpec, setup: RunSetup, resources: contextlib.ExitStack) -> RecordedController:
    recorded = RecordedController(spec.name, setup.folder, setup.history_url, namespace=setup.namespace)
    resources.callback(recorded.close)
    return recorded


def _logs(job: JobFile, setup: RunSetup) -> NodeLogs:
    secrets = (job.secret_key, job.public_key, *secret_values(job.spec))
    return NodeLogs(setup.folder, secrets=secrets, in_thread=setup.in_threads)


def _read_back(job: JobFile, master: JobMaster, folder: Path) -> WayBack:
    """Set the ledgers of a new master; return its state, and what is lost, from the log or a checkpoint."""
    log = read_log_file(folder)
    if log.damage is None:
        try:
            return WayBack(*read_back(master, log.entries), words="")
        except CheckpointError as error:  # entries are doubled or missing in a log of an earlier release
            log = replace(log, damage=LogDamage(1, len(log.entries)), after=log.entries, entries=())
            logger.warning("%s contradicts itself: %s", log.path, error)
    assert log.damage is not None
    checkpoints = CheckpointFolder(folder, job.spec.checkpoint_url)
    remains = Remains(
        log.entries,
        log.after,
        has_hole=log.damage.n_after > 0,
        checkpoints=checkpoints.complete(),
        n_checkpoint=checkpoints.last_number(),
        nodes=names_in(folder),
    )
    way = go_back(master, job.spec, remains)
    if way is None:
        raise CheckpointError(
            f"{log.path} is damaged: {log.damage.words}; which rows were trained is lost from there on, and "
            "there is no whole checkpoint to go back to; restore the file from a backup, or "
            f"{submit_from(folder)}"
        )
    return replace(way, words=f"{log.path} is damaged: {log.damage.words}; {way.words}")


def _check_goes_on(recorded: RecordedController, record: StateRecord, folder: Path) -> None:
    """Refuse to train on a job that had ended, where its damaged log does not say so."""
    if recorded.is_submitted and recorded.controller.is_ended and record.stage is not Stage.ENDED:
        raise CheckpointError(
            f"the job in {folder} had ended, and its write-ahead log is damaged: nothing is left to do; "
            f"its checkpoints are in {folder / 'checkpoints'} or at its checkpoint_url"
        )


def _plan_of_journal(
    way: WayBack, master: JobMaster, recorded: RecordedController, at_s: float
) -> tuple[Order, ...]:
    """Return the orders for the plan that was decided last: a damaged log may know an older one only."""
    if not way.words or not recorded.is_submitted or recorded.losses or master.stage is Stage.ENDED:
        return ()
    plan = recorded.controller.target
    return () if plan == master.target else master.set_target(plan, at_s)


def _moved(job: JobFile, setup: RunSetup, endpoint: str) -> JobFile:
    """Return the job at its endpoint and anchor of now, written where they changed."""
    now = replace(job, endpoint=endpoint, anchor=setup.clock.anchor)
    if now != job:
        write_job(setup.folder, now)
    return now


def _adopt(record: StateRecord, spec: JobSpec, backend: Backend, logs: NodeLogs, endpoint: str) -> None:
    """Take over the nodes of the earlier master, with what is known of their logs."""
    logs.reload([node.id for node in record.nodes])
    backend.adopt({n.id: Need(n.cpu, n.memory_mib, spec.gpu_of(n.role)) for n in record.nodes})
    backend.set_master_endpoint(endpoint)  # also when unchanged: an earlier master may have died before it


def _parts(run: _Run, setup: RunSetup, resources: contextlib.ExitStack) -> Parts[Action]:
    job, folder, clock = run.job, setup.folder, setup.clock
    trained = Trained(job.spec.model, replace(job.spec.data, path=redact(job.spec.data.path)), job.features)
    on_disk = CheckpointFolder(folder, job.spec.checkpoint_url, trained=trained)
    checkpoints = CheckpointThread(on_disk, run.socket.wake, in_thread=setup.in_threads)
    resources.callback(checkpoints.close)
    program = traits_of(job.spec, job.features, folder).program
    actions = OwnActions(
        job,
        folder,
        batch_costs=past_costs(setup.history_url, job.spec, program),
        master=run.master,
        backend=setup.backend,
        socket=run.socket,
        checkpoints=checkpoints,
        clock=clock,
        spent=lambda: run.recorded.controller.spent,
    )
    return Parts(
        spec=job.spec,
        capacity=run.capacity,
        started_at_s=job.started_at_s,
        folder=folder,
        backend=setup.backend,
        master=run.master,
        inputs=WireInputs(
            job.spec.name,
            folder,
            master=run.master,
            socket=run.socket,
            logs=run.logs,
            new_orders=actions.new_orders,
            clock=clock,
        ),
        persistence=WriteAheadPersistence(run.master, folder),
        perform=actions.perform,
        recorded=run.recorded,
        clock=clock,
        began_from=job.began_from,
    )
