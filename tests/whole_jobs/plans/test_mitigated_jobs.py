"""Actions against stragglers on real jobs of processes: they take effect, and every row is trained once.

The optimizer is Adam, which counts the pushes of each parameter: so the last checkpoint of an asynchronous job says
how many batches were applied.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest
from support.driver.killed_master import Comeback
from support.driver.real_job import Job, plan, succeeded
from support.driver.resized_nodes import BEFORE, V1, Resizing, limit, pids
from support.waiting import LIMIT_S

from dlrover_nb.core.data import make_features
from dlrover_nb.core.rundir.journal import JOURNAL, read_events, read_journal
from dlrover_nb.core.runtime.checkpoints import ps_checkpoint
from dlrover_nb.core.runtime.process.limits import quota_us
from dlrover_nb.core.structs.decisions.actions import (
    Action,
    ActionChoice,
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MitigationChoice,
    SetSize,
)
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Optimizer, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import BatchSizesSet, MitigationEnded, NodeLeft
from dlrover_nb.testing.faults import Persistent, slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.driver.own.own_job import OwnJob

pytestmark = pytest.mark.release

MODEL = ModelSpec(optimizer=Optimizer.ADAM, learning_rate=0.003, hidden=(32, 16))
DELAY_S = 1.0
WORKER_0, PS_0 = KillRestart("worker-0", Role.WORKER), KillRestart("ps-0", Role.PS)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(**changes: object) -> Job:
        fields = {"plan": plan(2, 1), "model": MODEL, "heartbeat_timeout_s": LIMIT_S} | changes
        jobs.append(job := Job(tmp_path, make_features(DataSpec(), MODEL), **fields))
        job.driver.start()
        job.until(lambda now: now.running == fields["plan"] and now.train.n_sample_done)
        return job

    yield begin
    for job in jobs:
        job.close()


def mitigate(driver: OwnJob, action: Action, decision: str = "d1") -> None:
    choice = MitigationChoice(decision, ActionChoice.of(action), "ada", "it is slow")
    driver._commands.ask(lambda: driver._executor.carry_out(driver._master.mitigate(choice, driver._now_s())))


def facts(job: Job, kind: type) -> list[object]:
    return [event for event in read_journal(job.folder / JOURNAL) if isinstance(event, kind)]


def answered(job: Job, decision: str = "d1") -> str:
    """Wait until an action has ended; return why it is not in effect."""
    found: dict[str, str] = {}

    def has_ended(_now: object) -> bool:
        found.update({each.decision: each.why_not for each in facts(job, MitigationEnded)})
        return decision in found

    job.until(has_ended)
    return found[decision]


def names(job: Job, role: Role) -> list[str]:
    return [node.id for node in job.now.nodes if node.role is role]


def until_named(job: Job, role: Role, *wanted: str) -> None:
    """Wait until the published nodes are these: they are published after the facts."""
    job.until(lambda _: names(job, role) == [*wanted])


def n_push(job: Job) -> int:
    """Return how many updates all dense parameters have had, by the last checkpoint."""
    newest = max(job.folder.glob("checkpoints/*/manifest.json"))
    manifest = json.loads(newest.read_bytes())
    counts = set()
    for path, sha256 in manifest["files"]:
        counts |= set(ps_checkpoint.read(path, sha256).dense[-1].tolist())
    (count,) = counts
    return int(count)


def n_batch(job: Job) -> int:
    size = job.spec.batch_size * job.spec.shard_batches
    whole, rest = divmod(job.features.n_train, size)
    return (whole * job.spec.shard_batches + math.ceil(rest / job.spec.batch_size)) * job.spec.n_epoch


def test_a_worker_of_an_asynchronous_job_is_replaced_and_no_batch_is_applied_twice(
    start: Callable[..., Job],
) -> None:
    job = start(n_epoch=20)
    mitigate(job.driver, WORKER_0)
    assert answered(job) == ""
    until_named(job, Role.WORKER, "worker-1", "worker-2")
    end = succeeded(job)
    assert end.train.refused == 0
    assert n_push(job) == n_batch(job)
    left = {each.node: each.error for each in facts(job, NodeLeft)}
    assert left == dict.fromkeys(("worker-0", "worker-1", "worker-2", "ps-0"), "")


def test_a_ps_is_replaced_and_no_batch_is_lost(start: Callable[..., Job]) -> None:
    job = start(n_epoch=20, plan=plan(1, 2))
    mitigate(job.driver, PS_0)
    assert answered(job) == ""
    until_named(job, Role.PS, "ps-1", "ps-2")
    end = succeeded(job)
    assert end.train.returned == end.train.refused == 0
    assert n_push(job) == n_batch(job)


def test_nodes_of_other_sizes_take_the_place_of_a_worker_and_of_a_ps(start: Callable[..., Job]) -> None:
    job = start(n_epoch=20, plan=plan(2, 2))
    for action in (SetSize("worker-0", Role.WORKER, 0.7, 600), SetSize("ps-1", Role.PS, 0.6, 300)):
        mitigate(job.driver, action, action.node)
        assert answered(job, action.node) == ""
    until_named(job, Role.WORKER, "worker-1", "worker-2")
    until_named(job, Role.PS, "ps-0", "ps-2")
    sizes = {node.id: (node.cpu, node.memory_mib) for node in job.now.nodes}
    assert (sizes["worker-2"], sizes["ps-2"]) == ((0.7, 600), (0.6, 300))
    job.until(lambda now: now.running == plan(2, 2))  # which holds for the others
    end = succeeded(job)
    assert end.train.refused == 0
    assert n_push(job) == n_batch(job)


@pytest.mark.skipif(not (V1 / "cpu" / "cgroup.procs").exists(), reason="reads control groups of v1")
def test_a_ps_gets_more_cores_in_place_than_the_plan_says(start: Callable[..., Job]) -> None:
    job = start(plan=BEFORE, n_epoch=30, backend=Resizing)
    before = job.until(lambda now: now.running == BEFORE)
    if not all(node.cpu_enforced for node in before.nodes):
        job.driver.stop("ada")
        pytest.skip("this process may not make control groups")
    mitigate(job.driver, SetSize("ps-1", Role.PS, 0.6, BEFORE.ps.memory_mib))
    assert answered(job) == ""
    after = job.until(lambda now: {n.id: n.cpu for n in now.nodes}["ps-1"] == 0.6)
    assert after.target == BEFORE
    assert pids(after) == pids(before)
    quota = {node.id: limit(node.pid, "cpu", "cpu.cfs_quota_us") for node in after.nodes if node.pid}
    assert (quota["ps-0"], quota["ps-1"]) == (quota_us(BEFORE.ps.cpu)[0], quota_us(0.6)[0])
    succeeded(job)


def test_the_coordinator_of_a_synchronous_job_is_replaced_with_all_that_it_was_told(
    start: Callable[..., Job],
) -> None:
    job = start(n_epoch=20, sync=Sync.BSP)
    sizes = (("worker-0", job.spec.batch_size // 2), ("worker-1", job.spec.batch_size * 3 // 2))
    mitigate(job.driver, AdjustBatches(sizes), "sizes")
    mitigate(job.driver, PS_0)
    assert answered(job) == ""
    until_named(job, Role.PS, "ps-1")
    job.until(lambda _: "batch sizes" in " ".join(line.text for line in job.driver.logs("ps-1", 100)))
    assert facts(job, BatchSizesSet)[0].sizes == sizes
    succeeded(job)


def test_a_slow_worker_is_not_waited_for_and_its_rows_are_trained_once(start: Callable[..., Job]) -> None:
    job = start(n_epoch=8, sync=Sync.BSP, plan=plan(3, 1))
    mitigate(job.driver, BackupWorkers(1))
    with slow(job.driver, "worker-0", Persistent(DELAY_S)):
        end = succeeded(job)
    assert end.train.refused == 0
    assert end.train.returned, "it is late again and again"


def test_a_slow_worker_is_replaced_and_the_job_goes_on_with_those_that_are_well(
    start: Callable[..., Job],
) -> None:
    job = start(n_epoch=20, sync=Sync.BSP)
    with slow(job.driver, "worker-0", Persistent(DELAY_S / 2)):
        mitigate(job.driver, WORKER_0)
        assert answered(job) == ""
        until_named(job, Role.WORKER, "worker-1", "worker-2")
    succeeded(job)


def test_a_worker_that_is_killed_under_other_batch_sizes_and_rates_costs_nothing_but_itself(
    start: Callable[..., Job],
) -> None:
    job = start(n_epoch=20)
    mitigate(job.driver, AdjustBatches((("worker-0", 64), ("worker-1", 512))), "sizes")
    mitigate(job.driver, AdjustRates((("worker-0", 0.5),)), "rates")
    job.kill(Role.WORKER)
    job.until(lambda now: now.running and "worker-2" in names(job, Role.WORKER))
    assert [each.sizes for each in facts(job, BatchSizesSet)] == [
        (("worker-0", 64), ("worker-1", 512)),
        (("worker-1", 512),),
    ]
    succeeded(job)


def test_the_last_worker_trains_until_its_successor_does(start: Callable[..., Job]) -> None:
    job = start(n_epoch=20, plan=plan(1, 1))
    mitigate(job.driver, WORKER_0)
    assert answered(job) == ""
    until_named(job, Role.WORKER, "worker-1")
    succeeded(job)
    assert n_push(job) == n_batch(job)


def test_a_master_that_is_killed_amid_it_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    before = f"""
import threading, time
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart, MitigationChoice
from dlrover_nb.core.structs.plan.resources import Role

def mitigate():
    while "driver" not in globals() or driver.snapshot().running is None:
        time.sleep(0.02)
    choice = MitigationChoice("d1", ActionChoice.of({WORKER_0!r}), "ada")
    driver._commands.ask(
        lambda: driver._executor.carry_out(driver._master.mitigate(choice, driver._now_s()))
    )

threading.Thread(target=mitigate, daemon=True).start()
""".replace("<Role.WORKER: 'worker'>", "Role.WORKER")
    features = make_features(DataSpec(), MODEL)
    job = Comeback(tmp_path, features, "ipc", before=before, n_epoch=20, model=MODEL, plan=plan(2, 1))
    try:
        job.until(lambda now: any(node.id == "worker-2" for node in now.nodes))
        job.kill_master()
        job.come_back()
        job.until(lambda now: {n.id for n in now.nodes if n.role is Role.WORKER} == {"worker-1", "worker-2"})
        succeeded(job)  # type: ignore[arg-type]
        ended = [e for e in read_events(job.folder) if isinstance(e, MitigationEnded)]
        assert [(each.decision, each.why_not) for each in ended] == [("d1", "")]
    finally:
        job.end()
