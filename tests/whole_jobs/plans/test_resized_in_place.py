"""A job whose nodes are resized in place: same processes, other limits, every row once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.driver_world import ResizingPlayedBackend
from support.driver.driver_world import succeeded as played_to_its_end
from support.driver.real_job import Job, plan, succeeded
from support.driver.resized_nodes import BEFORE, V1, Resizing, limit, pids

from dlrover_nb.core.codec import from_json
from dlrover_nb.core.rundir.journal import JOURNAL, read_journal
from dlrover_nb.core.runtime.process.limits import quota_us
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import NodeReported, PlanApplied
from dlrover_nb.core.structs.wire.node_config import NodeConfig

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.driver_world import DriverWorld


LEAST = 128 << 20  # bytes that a node is given beside what it took before
AFTER = ResourcePlan(RolePlan(2, 0.8, 1024), RolePlan(2, 0.4, 512))


@pytest.mark.release
@pytest.mark.skipif(not (V1 / "cpu" / "cgroup.procs").exists(), reason="reads control groups of v1")
def test_a_job_is_resized_without_a_new_process_or_a_pause_and_every_row_counts_once(
    start: Callable[..., Job],
) -> None:
    job = start(
        plan=BEFORE, n_epoch=30, backend=Resizing
    )  # a sample of the new plan has to come before the end
    before = job.until(lambda now: now.running == BEFORE)
    if not all(node.cpu_enforced and node.memory_enforced for node in before.nodes):
        job.driver.stop("ada")
        pytest.skip("this process may not make control groups")
    memory = {pid: limit(pid, "memory", "memory.limit_in_bytes") for pid in pids(before).values() if pid}
    job.scale(AFTER)
    after = job.until(lambda now: now.running == AFTER)
    assert pids(after) == pids(before)
    for node in after.nodes:
        assert node.pid
        want = AFTER.role(node.role)
        assert (node.cpu, node.memory_mib) == (want.cpu, want.memory_mib)
        assert (node.cpu_enforced, node.memory_enforced) == (True, True)
        assert limit(node.pid, "cpu", "cpu.cfs_quota_us") == quota_us(want.cpu)[0]
        grown = (want.memory_mib - BEFORE.role(node.role).memory_mib) << 20
        now = limit(node.pid, "memory", "memory.limit_in_bytes")
        if memory[node.pid] > LEAST:
            assert now == memory[node.pid] + grown
        assert now > LEAST or node.role is Role.WORKER  # whose libraries may take nearly all of it
        config = from_json((job.folder / "nodes" / f"{node.id}.json").read_bytes(), NodeConfig)
        assert (config.cpu, config.memory_mib) == (want.cpu, want.memory_mib)
    job.until(lambda now: any(sample.plan == AFTER for sample in now.samples))
    end = succeeded(job)
    facts = list(read_journal(job.folder / JOURNAL))
    applied = [fact for fact in facts if isinstance(fact, PlanApplied)][-1]
    assert (applied.plan, applied.pause_s) == (AFTER, 0.0)
    reports = [f for f in facts if isinstance(f, NodeReported) and f.plan == AFTER]
    assert min(f.at_s - f.sample.window_s for f in reports) >= applied.at_s
    assert end.train.returned == 0


def test_where_nodes_cannot_be_resized_they_are_replaced(play: Callable[..., DriverWorld]) -> None:
    job = play(n_epoch=5)
    before = job.until(lambda now: now.running == job.spec.plan)
    target = plan(ps_cpu=0.5)
    job.scale(target)
    after = job.until(lambda now: now.running == target)
    servers = [{node.id for node in now.nodes if node.role is Role.PS} for now in (before, after)]
    assert servers == [{"ps-0"}, {"ps-1"}]
    played_to_its_end(job)


@pytest.mark.parametrize("n_answer", range(5))
def test_a_master_that_is_killed_on_the_way_is_followed_by_one_that_goes_on_with_the_same_processes(
    play: Callable[..., DriverWorld], n_answer: int
) -> None:
    job = play(plan=BEFORE, n_epoch=8, backend=ResizingPlayedBackend)
    before = job.until(lambda now: now.running == BEFORE)
    job.backend.n_answer = n_answer
    job.scale(AFTER)
    now = job.pass_time(2.0)
    assert (now.running == AFTER) == (n_answer == 4)
    job.crash()
    job.come_back()
    after = job.until(lambda now: now.running == AFTER)
    assert pids(after) == pids(before)
    assert {(n.cpu, n.memory_mib) for n in after.nodes if n.role is Role.PS} == {(0.4, 512)}
    played_to_its_end(job)


def test_a_node_that_its_machine_cannot_resize_is_replaced_and_the_story_says_why(
    play: Callable[..., DriverWorld],
) -> None:
    job = play(plan=BEFORE, n_epoch=8, backend=ResizingPlayedBackend)
    job.until(lambda now: now.running == BEFORE)
    job.backend.refusals = {"ps-0": "no room"}
    target = ResourcePlan(BEFORE.worker, AFTER.ps)
    job.scale(target)
    after = job.until(lambda now: now.running == target)
    assert {node.id for node in after.nodes} == {"ps-1", "ps-2", "worker-0", "worker-1"}
    assert job.story_has("ps-0 cannot be resized in place", "no room")
    played_to_its_end(job)
