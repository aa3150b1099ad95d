"""What simulated nodes report of their time: it sums to what an iteration took, and names the cause."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plans.sim_world import make_job, make_plan, make_world, play

from dlrover_nb.core.controller.measured.host_share import HostTally
from dlrover_nb.core.simulator import Faults
from dlrover_nb.core.simulator.one_job.reports import RunRate, ps_sample, worker_sample
from dlrover_nb.core.simulator.one_job.sim_nodes import SimNode
from dlrover_nb.core.simulator.truth import TermsTruth
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import TimeSplit
from dlrover_nb.core.structs.views.events import NodeReported

TRUTH = TermsTruth(2e-3, 0.02, 0.01, 1e-4, 0.05, 0.001)
NORMAL = TRUTH.split(make_plan(4, 2), 512)
speeds = st.floats(0.05, 1.0)


def node(role: Role = Role.WORKER, factor: float = 1.0) -> SimNode:
    return SimNode("worker-0", role, 4.0, 4096, 0.0, factor=factor)


def parts(split: TimeSplit) -> list[float]:
    return [getattr(split, field.name) for field in fields(split)]


@given(
    pace=st.builds(
        RunRate,
        batch=st.floats(1, 5000),
        split=st.builds(TimeSplit, *[st.just(0.0) | st.floats(1e-6, 10)] * 7),
        ps_factor=speeds,
        slowest=st.none() | speeds,
    ),
    factor=speeds,
    n_sample=st.integers(0, 10**6),
    window_s=st.floats(0.1, 1000),
)
def test_the_parts_of_every_report_sum_to_its_iteration_and_none_is_below_zero(
    pace: RunRate, factor: float, n_sample: int, window_s: float
) -> None:
    worker = worker_sample(node(factor=factor), n_sample, pace, at_s=window_s, memory_mib=1.0)
    ps = ps_sample(node(Role.PS), n_sample, pace, at_s=window_s, memory_mib=1.0, parameter_mib=1.0, share=1.0)
    for sample in (worker, ps):
        if pace.split.total_s or sample is ps:
            assert sample.split.total_s == pytest.approx(sample.iter_s, rel=1e-6)
        assert min(parts(sample.split)) >= -1e-9 * max(sample.iter_s, 1)


def test_what_workers_pull_and_push_is_what_the_ps_send_and_receive() -> None:
    pace = RunRate(512, NORMAL, 4, 2, n_byte=1000.0)
    workers = [worker_sample(node(), 5120, pace, at_s=10.0, memory_mib=1.0) for _ in range(4)]
    ps = [
        ps_sample(node(Role.PS), 4 * 5120, pace, at_s=10.0, memory_mib=1.0, parameter_mib=1.0, share=share)
        for share in (0.525, 0.475)
    ]
    assert [sample.n_byte_received for sample in ps] == [21_000, 19_000]
    assert sum(s.n_byte_sent for s in workers) == sum(s.n_byte_received for s in ps) == 40_000
    assert sum(s.n_byte_received for s in workers) == sum(s.n_byte_sent for s in ps) == 40_000


def test_a_normal_worker_reports_the_terms_of_the_truth() -> None:
    played = RunRate(512, NORMAL, 4, 2).spread(NORMAL.total_s, 1.0)
    assert parts(played) == pytest.approx(parts(NORMAL))
    assert played.update_s == pytest.approx(0.02 * 4 / (2 * 4.0) + 0.01 * 4 / 2 / 2)  # eq. 3, half of eq. 4
    assert played.lookup_s == pytest.approx(1e-4 * 512 / 2 + 0.01 * 4 / 2 / 2)  # eq. 5, half of eq. 4


@given(speeds)
def test_what_a_slow_worker_loses_is_computing(factor: float) -> None:
    played = RunRate(512, NORMAL, 4, 2).spread(NORMAL.total_s / factor, factor)
    lost_s = NORMAL.total_s / factor - NORMAL.total_s
    assert played.compute_s == pytest.approx(NORMAL.compute_s + lost_s)
    assert played.lookup_s == pytest.approx(NORMAL.lookup_s)


@given(speeds)
def test_what_a_slow_ps_costs_is_waiting_for_it(factor: float) -> None:
    played = RunRate(512, NORMAL, 4, 2, ps_factor=factor).spread(NORMAL.total_s / factor, 1.0)
    lost_s = NORMAL.total_s / factor - NORMAL.total_s
    assert played.compute_s == pytest.approx(NORMAL.compute_s)
    assert played.lookup_s + played.update_s == pytest.approx(NORMAL.lookup_s + NORMAL.update_s + lost_s)


@given(speeds)
def test_in_step_a_fast_worker_waits_for_the_slow_one_which_waits_for_nobody(slowest: float) -> None:
    pace = RunRate(512, NORMAL, 4, 2, slowest=slowest)
    iter_s = NORMAL.total_s / slowest
    assert pace.spread(iter_s, 1.0).peers_s == pytest.approx(iter_s - NORMAL.total_s)
    assert pace.spread(iter_s, slowest).peers_s == pytest.approx(0)


@pytest.mark.parametrize("global_batch", [None, 2048])
@pytest.mark.parametrize("sync", [Sync.ASP, Sync.BSP])
def test_all_reports_of_a_world_with_slow_nodes_sum_to_their_iterations(
    global_batch: int | None, sync: Sync
) -> None:
    world = make_world(faults=Faults(slow_per_day=500.0, slow_s=200.0))
    world.submit(make_job(plan=make_plan(4, 2), global_batch=global_batch, sync=sync))
    played = [event.sample for _, _, event in play(world, until_s=3000.0) if isinstance(event, NodeReported)]
    assert len(played) > 100
    for sample in played:
        assert sample.split.total_s == pytest.approx(sample.iter_s, rel=1e-9)
    waits = [sample.split.peers_s for sample in played if sample.role is Role.WORKER]
    assert (max(waits) > 0) == (sync is Sync.BSP)


@given(host=st.floats(0.2, 1.0), n_sample=st.integers(600, 20_000), other=st.floats(0.0, 0.1))
def test_what_others_take_of_a_worker_is_read_back_from_its_report(
    host: float, n_sample: int, other: float
) -> None:
    """Whatever the plan's parts are and however the window falls, so that neighbors move no plan's speed."""
    split = replace(NORMAL, other_s=other)
    window_s = n_sample / 512 * split.total_s / host
    pace = RunRate(512, split, 4, 2, host=host)
    tally = HostTally()
    tally.add(worker_sample(node(), n_sample, pace, at_s=window_s, memory_mib=1.0), 4.0)
    assert tally.lost_s(1.0) / window_s == pytest.approx(1 - host, abs=0.01)
