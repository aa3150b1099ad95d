"""What plans would do on a host with other load, and what a change can bring at most."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_explain import analysed, seen

from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.advising.advice import PlannerSettings
from dlrover_nb.core.planner.advising.experiments import experiment
from dlrover_nb.core.planner.advising.explain import AdviceContext, lack
from dlrover_nb.core.planner.advising.improvement import probe
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.predictions.completion import SLACK, most_over_now
from dlrover_nb.core.planner.predictions.host import grows, host_factors, weights
from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.plan.bounds import PlanBounds, Quota
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan


def plan(n_worker, n_ps, cpu=0.5):
    return ResourcePlan(RolePlan(n_worker, cpu, 1024), RolePlan(n_ps, 0.25, 512))


AXES = axes_of([plan(w, p) for w in (1, 2, 3, 4) for p in (1, 2)])
COUNTS = st.integers(1, 8)


@given(share=st.floats(0, 0.9), given_cores=st.floats(0.01, 2.0), over=st.floats(0.1, 5))
def test_a_host_slows_plans_and_speeds_none_up(share, given_cores, over):
    load = HostLoad(share, given_cores, given_cores / (1 - share), 3.0)
    factors = host_factors(
        AXES, np.full(len(AXES), over), load.wanted_cores * np.full(len(AXES), over), load, 2.0
    )
    assert ((factors > 0) & (factors <= 1)).all()


def test_the_present_plan_keeps_what_it_gets_and_without_load_all_get_what_they_want():
    load = HostLoad(0.4, 0.6, 1.0, float(weights(axes_of([plan(2, 1)]))[0]))
    assert host_factors(axes_of([plan(2, 1)]), np.ones(1), np.ones(1), load, 2.0) == pytest.approx(0.6)
    for none in (None, HostLoad(0.02, 0.6, 0.6, 3.0)):
        assert (host_factors(AXES, np.ones(len(AXES)), np.ones(len(AXES)), none, 2.0) == 1).all()


@given(n=COUNTS)
def test_a_plan_that_wants_more_gets_a_smaller_part_of_it(n):
    load = HostLoad(0.4, 0.6, 1.0, 3.0)
    axes = axes_of([plan(n, 1), plan(n + 1, 1)])
    over_now = axes[:, 0] / 2
    part = host_factors(axes, over_now, over_now, load, 2.0)
    assert part[1] <= part[0] + 1e-9
    assert part[0] <= 0.6 + 1e-9  # no plan wins time back from others
    assert (part * over_now)[1] >= (part * over_now)[0] * 0.999  # more nodes weigh more, so none gets less


def test_a_faster_plan_that_wants_fewer_cores_gets_them_on_a_busy_host():
    """Known by its windows: the present plan's cores for a sample say nothing of it."""
    load = HostLoad(0.35, 0.65, 1.0, float(weights(axes_of([plan(4, 1)]))[0]))
    to = axes_of([plan(3, 1)])
    by_present = host_factors(to, np.full(1, 1.2), np.full(1, 1.2), load, 2.0)
    by_windows = host_factors(to, np.full(1, 1.2), np.full(1, 0.7), load, 2.0)
    assert by_present[0] < by_windows[0]
    assert by_windows == pytest.approx(0.65)  # it loses the part that all lose


def iteration_s(w, p):
    return 0.02 + 0.012 * (w - 2) ** 2 + 0.02 * (p - 1)


def on_host(load, n_left, n_measured=6):
    """Return the analysis of a job on the best of its measured plans, two workers and one PS."""
    sizes = [(w, p) for w in (1, 2, 3, 4, 6) for p in (1, 2, 4)][:n_measured]
    samples = [seen(nodes(w, p), w * 512 / iteration_s(w, p)) for w, p in sizes]
    wide = PlanBounds(max_workers=8, max_ps=8, worker_cpus=(0.5,), ps_cpus=(0.5,))
    situation = analysed(sum(samples, ()), bounds=wide, host=load).situation
    return analyse(replace(situation, plan=nodes(2, 1), n_sample_left=n_left))


def nodes(w, p):
    return ResourcePlan(RolePlan(w, 0.5, 1024), RolePlan(p, 0.5, 512))


@pytest.mark.parametrize("n_left", [2_000_000, 10_000_000])
def test_what_the_host_takes_makes_no_experiment_worth_more(n_left):
    """The model speaks of an idle host: beside the speed here and now each plan looked faster by the load."""
    for load in (None, HostLoad(0.45, 0.55, 1.0, 3.0)):
        analysis = on_host(load, n_left)
        others = (analysis.space.axes != axes_of([nodes(2, 1)])).any(axis=1)
        assert experiment(analysis, others, others, 15.0) is None
    assert experiment(on_host(None, 100_000_000), others, others, 15.0) is not None


def test_a_rejected_plan_stays_rejected_when_the_host_becomes_busy(words):
    idle, busy = (on_host(load, 100_000_000) for load in (None, HostLoad(0.45, 0.55, 1.0, 3.0)))
    trial = probe(idle, PlannerSettings(), rejected_plans={}).candidate
    rejected = {trial.plan: trial.prediction.without_host.samples_per_s}
    again = probe(busy, PlannerSettings(), rejected_plans=rejected)
    assert again is None or again.candidate.plan != trial.plan
    here = busy.candidate(trial.plan)
    assert here.prediction.samples_per_s < 0.8 * trial.prediction.samples_per_s
    context = AdviceContext(PlannerSettings(), lambda _: "", rejected, Quota())
    assert lack(busy, here, nodes(2, 1), context) == words


def test_growth_is_what_takes_more_cores():
    assert grows(axes_of([plan(3, 1), plan(2, 1), plan(1, 2)]), plan(2, 1)).tolist() == [True, False, False]


SHARES = st.tuples(st.floats(0.05, 0.9), st.floats(0.05, 0.9)).filter(lambda s: sum(s) <= 1)


def bound(to, now, shares, batch=512.0):
    row = axes_of([now])[0]
    return float(most_over_now(axes_of([to]), np.full(1, batch), row, 512.0, np.array(shares))[0])


@given(shares=SHARES, w=COUNTS, p=COUNTS)
def test_more_ps_bring_at_most_all_waits(shares, w, p):
    most = bound(plan(w, p + 1), plan(w, p), shares)
    assert most == pytest.approx(1 / max(1 - shares[1] - SLACK, SLACK))


@given(shares=SHARES, w=COUNTS, p=COUNTS)
def test_what_changes_nothing_brings_next_to_nothing(shares, w, p):
    assert bound(plan(w, p), plan(w, p), shares) <= 1 / (1 - SLACK) + 1e-9


@given(shares=SHARES, w=COUNTS)
def test_more_workers_bring_at_most_their_number(shares, w):
    assert bound(plan(2 * w, 1), plan(w, 1), shares) <= 2 / (1 - SLACK) + 1e-9


@given(shares=SHARES)
def test_more_cores_of_workers_shorten_computing_alone(shares):
    compute, _ = shares
    most = bound(plan(2, 1, cpu=1.0), plan(2, 1, cpu=0.5), shares)
    assert most == pytest.approx(1 / max(1 - compute / 2 - SLACK, SLACK))


def test_parts_that_are_not_known_bound_nothing():
    assert bound(plan(2, 1), plan(1, 1), (np.nan, np.nan)) == np.inf
