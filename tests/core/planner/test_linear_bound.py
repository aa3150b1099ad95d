"""A prediction for more nodes is never more than linear in what was added, unless it was measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_explain import seen

from dlrover_nb.core.planner.analysis import Analysis, analyse
from dlrover_nb.core.planner.bid import bid
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

BOUNDS = PlanBounds(max_workers=8, max_ps=4, worker_cpus=(0.5, 1.0), ps_cpus=(0.5, 1.0))
ROOMY = Capacity((NodeShape(64.0, 640_000),))
EXACT = 1 + 1e-9


def nodes(w: int, p: int = 1, worker_cpu: float = 0.5, ps_cpu: float = 0.5) -> ResourcePlan:
    return ResourcePlan(RolePlan(w, worker_cpu, 1024), RolePlan(p, ps_cpu, 512))


PLANS = st.builds(
    nodes, st.integers(1, 8), st.integers(1, 4), st.sampled_from([0.5, 1.0]), st.sampled_from([0.5, 1.0])
)
SPEEDS = st.dictionaries(PLANS, st.floats(5_000, 100_000), min_size=1, max_size=6)  # any: no law made them


def analysed(speeds, now, *, host=None, **spec) -> Analysis:
    job = JobSpec("x", plan=now, bounds=BOUNDS, **spec)
    samples = [
        replace(each, batch_size=job.batch_of(plan.worker.count))
        for plan, speed in speeds.items()
        for each in seen(plan, speed)
    ]
    return analyse(Situation(job, ROOMY, 100_000, 16, now, tuple(samples), 100_000_000, host=host))


def added(plan: ResourcePlan, to: ResourcePlan) -> float | None:
    """Return how many times the nodes and cores of another plan are there in all; None: it has fewer."""
    times = [
        plan.worker.count / to.worker.count,
        plan.ps.count / to.ps.count,
        plan.worker.cpu / to.worker.cpu,
        plan.ps.cpu / to.ps.cpu,
    ]
    return None if min(times) < 1 else float(np.prod(times))


@settings(max_examples=60)
@given(speeds=SPEEDS, now=PLANS, plan=PLANS, share=st.sampled_from([0.0, 0.3, 0.6]))
def test_nothing_that_was_not_measured_exceeds_what_was_added(speeds, now, plan, share):
    host = HostLoad(share, 1 - share, 1.0, 4.0) if share else None
    analysis = analysed(speeds, now, host=host)
    own = analysis.predict(plan)
    if plan in speeds:
        return
    for other in {*speeds, now}:
        times = added(plan, other)
        if times is not None:
            most = times * analysis.predict(other).without_host.samples_per_s * EXACT
            assert own.without_host.samples_per_s <= most
            assert own.without_host.high <= most


@settings(max_examples=40)
@given(speeds=SPEEDS, n=st.integers(1, 7), more=st.integers(1, 7), batch=st.sampled_from([None, 4096]))
def test_workers_bring_at_most_their_number(speeds, n, more, batch):
    now, plan = nodes(n), nodes(min(n + more, 8))
    analysis = analysed(speeds, now, global_batch=batch)
    if plan not in speeds:
        most = plan.worker.count / n * analysis.current.prediction.samples_per_s
        assert analysis.predict(plan).samples_per_s <= most * (EXACT if batch is None else 1.01)  # rounded m


def test_what_was_measured_stands_though_it_is_more():
    speeds = {nodes(1): 10_000.0, nodes(2): 25_000.0}
    analysis = analysed(speeds, nodes(1))
    assert analysis.predict(nodes(2)).samples_per_s == pytest.approx(25_000.0, rel=1e-6)
    assert analysis.predict(nodes(4)).samples_per_s <= 4 * 10_000.0 * EXACT


def test_the_model_alone_would_promise_more():
    """So the bound is of use: without it an unlucky measurement makes others look better than they can be."""
    speeds = {nodes(1): 10_000.0, nodes(2): 25_000.0, nodes(3): 40_000.0}
    analysis = analysed(speeds, nodes(1))
    raw = analysis.model.predict_plan(nodes(4), 512)
    assert raw.samples_per_s > 4 * 10_000.0
    assert analysis.predict(nodes(4)).samples_per_s <= 4 * 10_000.0 * EXACT


@settings(max_examples=20, deadline=None)
@given(speeds=SPEEDS, now=PLANS, share=st.sampled_from([0.0, 0.4]))
def test_a_bid_offers_each_plan_as_fast_as_a_what_if_answers(speeds, now, share):
    host = HostLoad(share, 1 - share, 1.0, 4.0) if share else None
    analysis = analysed(speeds, now, host=host)
    offered = bid(analysis.situation, analysis.model)
    assert offered.now.samples_per_s == pytest.approx(analysis.current.prediction.samples_per_s)
    for i, speed in enumerate(offered.predictions.samples_per_s.tolist()):
        answer = analysis.predict(offered.plan(i))
        assert speed == pytest.approx(answer.samples_per_s)
        assert offered.predictions.high[i] == pytest.approx(answer.high)


def test_a_bid_promises_no_more_than_the_job_itself():
    analysis = analysed({nodes(1): 10_000.0, nodes(2): 25_000.0, nodes(3): 40_000.0}, nodes(1))
    offered = bid(analysis.situation, analysis.model)
    larger = [i for i in range(len(offered)) if offered.plan(i).worker.count > 3]
    assert larger
    for i in larger:
        most = (added(offered.plan(i), nodes(1)) or 0.0) * 10_000.0
        assert offered.predictions.samples_per_s[i] <= most * EXACT


@settings(max_examples=20)
@given(speeds=SPEEDS, now=PLANS)
def test_a_curve_shows_what_a_what_if_answers(speeds, now):
    analysis = analysed(speeds, now)
    for axis, curve in enumerate(analysis.curves):
        for x, predicted in zip(curve.x, curve.predictions, strict=True):
            numbers = [now.worker.count, now.ps.count, now.worker.cpu, now.ps.cpu]
            numbers[axis] = x
            w, p, worker_cpu, ps_cpu = numbers
            answer = analysis.predict(nodes(int(w), int(p), worker_cpu, ps_cpu))
            assert predicted.samples_per_s == pytest.approx(answer.samples_per_s)
            assert predicted.high == pytest.approx(answer.high)
