"""A straggler on the simulated cluster, from its finding to its end: decided by a user, and by auto mode."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np
import pytest
from support.waiting import LIMIT_S

from dlrover_nb.core.backends.simulated.assumptions import SETTINGS
from dlrover_nb.core.backends.simulated.cluster import SimulatedCluster
from dlrover_nb.core.simulator import Faults, SimulatedJob, SimulatedWorld, TermsTruth, WorldSettings
from dlrover_nb.core.structs.decisions.actions import ActionChoice, AdjustBatches, AdjustRates
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.capacity import NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

TRUTH = TermsTruth(grad_s=2e-5, update_s=1e-4, lookup_s=2e-6, constant_s=1e-3)
PLAN = ResourcePlan(worker=RolePlan(4, 1.0, 2048), ps=RolePlan(2, 1.0, 2048))
SLOW = Faults(failures_per_day=0, slow_per_day=12.0, slow_factor=(0.3, 0.4), slow_s=1e6)


def job(**fields) -> SimulatedJob:
    spec = JobSpec("ads", owner="ada", plan=PLAN, policy="fixed-plan", **fields)
    return SimulatedJob(spec, TRUTH, 1 << 40)


@pytest.fixture
def cluster():
    settings = WorldSettings(report_s=15.0, faults=SLOW)
    world = SimulatedWorld([NodeShape(16.0, 65_536, 4)], rng=np.random.default_rng(2), settings=settings)
    made = SimulatedCluster(world, SETTINGS, lambda _spec: job(), speed=6000.0)
    yield made
    made.shutdown(force=True)


def until(what, snapshot, condition):
    """Wait for something that virtual time brings; return the snapshot that shows it."""
    end_s = time.monotonic() + LIMIT_S
    while not condition(shown := snapshot()):
        assert time.monotonic() < end_s, f"{what} did not happen: {shown}"
        time.sleep(0.01)
    return shown


def by_status(shown, status):
    return [each for each in shown.mitigations if each.status is status]


@pytest.mark.release
def test_a_user_accepts_what_is_proposed_and_it_is_done(cluster):
    handle = cluster.add(job(mode=Mode.SUGGEST, sync=Sync.ASP))
    shown = until("a proposal", handle.snapshot, lambda s: s.open_mitigation is not None)
    opened = shown.open_mitigation
    until("its line in the list", lambda: cluster.live_jobs()[0], lambda line: line.open_mitigation)
    assert any(each.node in opened.words for each in shown.stragglers)
    assert opened.why
    assert opened.cost
    decided = cluster.decide("ads", Decision(Verdict.ACCEPT, "ada", 0.0, proposal=opened.id))
    done = until("its end", handle.snapshot, lambda s: by_status(s, ProposalStatus.APPLIED))
    assert done.mitigations[0].decision == decided.id
    assert not done.decisions[1:]


@pytest.mark.parametrize("solution", [SolutionName.ANTDT_ND, SolutionName.BACKUP_WORKERS])
def test_auto_mode_does_it_by_itself_and_training_goes_on(cluster, solution):
    handle = cluster.add(job(mode=Mode.AUTO, sync=Sync.BSP, stragglers=solution))
    done = until("an end", handle.snapshot, lambda s: by_status(s, ProposalStatus.APPLIED))
    n_done = done.train.n_sample_done
    shown = until("more training", handle.snapshot, lambda s: s.train.n_sample_done > n_done)
    assert {decision.by for decision in shown.decisions} == {"auto"}
    assert not by_status(shown, ProposalStatus.FAILED)


def test_the_snapshot_tells_the_errors_of_nodes_that_were_lost():
    settings = WorldSettings(report_s=15.0, faults=Faults(failures_per_day=200.0, slow_per_day=0))
    world = SimulatedWorld([NodeShape(16.0, 65_536, 4)], rng=np.random.default_rng(2), settings=settings)
    made = SimulatedCluster(world, SETTINGS, lambda _spec: job(), speed=1000.0)
    try:
        handle = made.add(job(mode=Mode.MANUAL))
        shown = until("an error", handle.snapshot, lambda s: s.node_errors)
    finally:
        made.shutdown(force=True)
    assert {(each.n_retryable, each.n_unretryable, each.window_s) for each in shown.node_errors} == {
        (1, 0, 600.0)
    }


def test_a_user_orders_sizes_in_manual_mode_and_takes_them_back(cluster):
    handle = cluster.add(job(mode=Mode.MANUAL, sync=Sync.BSP))
    shown = until("training", handle.snapshot, lambda s: s.running is not None and s.samples_per_s > 0)
    workers = [node.id for node in shown.nodes if node.role is Role.WORKER]
    wanted = AdjustBatches(tuple(zip(workers, (256, 768, 512, 512), strict=True)))
    cluster.decide("ads", Decision(Verdict.MITIGATE, "ada", 0.0, action=ActionChoice.of(wanted)))
    done = until("its end", handle.snapshot, lambda s: by_status(s, ProposalStatus.APPLIED))
    assert done.undo.action.adjust == AdjustBatches(tuple((node, 512) for node in workers))
    cluster.decide("ads", replace(done.undo, by="ada"))
    back = until("the undo", handle.snapshot, lambda s: len(by_status(s, ProposalStatus.APPLIED)) == 2)
    assert back.undo.action.adjust == wanted


def test_what_cannot_be_simulated_ends_with_its_reason(cluster, words):
    handle = cluster.add(job(mode=Mode.MANUAL, sync=Sync.ASP))
    shown = until("training", handle.snapshot, lambda s: s.running is not None and s.samples_per_s > 0)
    rates = AdjustRates(tuple((node.id, 0.5) for node in shown.nodes if node.role is Role.WORKER))
    cluster.decide("ads", Decision(Verdict.MITIGATE, "ada", 0.0, action=ActionChoice.of(rates)))
    [failed] = until("its end", handle.snapshot, lambda s: by_status(s, ProposalStatus.FAILED)).mitigations
    assert failed.note == words
    assert handle.snapshot().undo is None
