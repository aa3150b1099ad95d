"""Laws of choosing plans for a whole cluster."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.greedy import equal
from dlrover_nb.core.planner.cluster import JobBid, select_plans
from dlrover_nb.core.structs.capacity import Capacity, NodeShape, fits, plan_needs
from dlrover_nb.core.structs.decisions import Candidate, Prediction
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan, diff

NOW = ResourcePlan(worker=RolePlan(2, 2.0, 2048), ps=RolePlan(1, 2.0, 2048))


def grown(workers, ps=1, cpu=2.0):
    return ResourcePlan(worker=RolePlan(workers, cpu, 2048), ps=RolePlan(ps, 2.0, 2048))


def candidate(plan, speed, *, priced=True, base=1000.0):
    return Candidate(
        plan=plan,
        prediction=Prediction(speed, 0.9 * speed, 1.1 * speed, extrapolates=False),
        cost_per_hour=0.034 * plan.total_cpu if priced else None,
        cost_per_million=None,
        finish_s=None,
        scale=diff(NOW, plan),
        transition_s=0.0,
        gain_samples_per_s=speed - base,
        breakdown=(),
        reason="",
    )


def bid(name, *, left=1_000_000, exponent=0.8, most=6, **changes):
    options = tuple(candidate(grown(w), 1000.0 * (w / 2) ** exponent) for w in range(1, most + 1))
    return JobBid(name, candidate(NOW, 1000.0), options, left, **changes)


def machines(n, cpu=8.0, mib=32 * 1024):
    return Capacity((NodeShape(cpu, mib, n),))


def needs_of(plans):
    return [need for plan in plans.values() if plan for need in plan_needs(plan)]


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 10**8), st.floats(0.2, 1.0), st.integers(1, 9), st.booleans()),
        min_size=1,
        max_size=8,
    ),
    st.integers(0, 10),
    st.sampled_from([2.0, 3.0, 5.0, 8.0]),
)
def test_chosen_nodes_always_find_a_place_and_no_running_job_gets_slower(jobs, spare, cpu):
    bids = [
        bid(f"j{i}", left=left, exponent=a, most=most, waits=waits)
        for i, (left, a, most, waits) in enumerate(jobs)
    ]
    held = [need for b in bids if not b.waits for need in plan_needs(NOW)]
    capacity = machines(3 * len(bids) + spare, cpu)
    assert fits(capacity, held)
    choice = select_plans(bids, capacity)
    assert fits(capacity, needs_of(choice.plans))
    for b in bids:
        plan = choice.plans[b.name]
        if b.waits:
            assert plan is None or plan in {c.plan for c in b.options}
        else:
            speed = {c.plan: c.prediction.samples_per_s for c in (b.current, *b.candidates)}[plan]
            assert speed >= 1000.0


def test_a_job_alone_gets_its_most_efficient_plan_where_there_is_room():
    choice = select_plans([bid("a")], machines(50), rho=0.0)
    assert choice.plans["a"] == grown(3)  # diminishing returns: the first worker brings most per cost
    assert choice.refusals == {}


def test_the_last_cores_go_to_the_job_that_ends_sooner():
    choice = select_plans([bid("long", left=10**9), bid("short", left=10**6)], machines(7, 2.0))
    assert choice.plans == {"long": NOW, "short": grown(3)}
    assert choice.refusals["long"].startswith("Needs 8 more cores (0 free)")


def test_a_waiting_job_starts_on_what_was_asked_or_waits_on():
    waiting = replace(bid("new", waits=True), candidates=())
    assert select_plans([waiting], machines(3, 2.0)).plans == {"new": NOW}
    refused = select_plans([waiting], machines(2, 2.0))
    assert refused.plans == {"new": None}
    assert refused.refusals["new"].startswith("Needs 6 more cores (4 free)")


def test_sums_that_fit_are_not_enough_where_no_machine_holds_a_node():
    big = candidate(grown(2, cpu=6.0), 3000.0)
    job = JobBid("a", candidate(NOW, 1000.0), (big,), 10**6)
    capacity = machines(8, 4.0)  # 32 cores in all, 14 wanted, but none for a node of 6
    assert select_plans([job], capacity).plans == {"a": NOW}


def test_one_unknown_price_makes_all_costs_effort():
    unpriced = replace(bid("b"), candidates=(candidate(grown(3), 1400.0, priced=False),))
    choice = select_plans([bid("a"), unpriced], machines(50), weight=equal)
    priced = replace(unpriced, candidates=(candidate(grown(3), 1400.0),))
    both = select_plans([bid("a"), priced], machines(50), weight=equal)
    assert choice.plans == both.plans
    gains = choice.selection.values
    effort = grown(3).effort - NOW.effort
    assert gains[-1] == pytest.approx(400.0 / effort)
    assert both.selection.values[-1] == pytest.approx(400.0 / (2 * 0.034))


def test_no_job_needs_nothing_and_names_must_differ():
    assert select_plans([], machines(1)).plans == {}
    with pytest.raises(InvalidValueError, match="job names must differ"):
        select_plans([bid("a"), bid("a")], machines(5))


def test_running_jobs_beyond_the_machines_are_an_error_that_says_what_to_do():
    with pytest.raises(CapacityError, match="allow shrinking, or stop a job"):
        select_plans([bid("a"), bid("b")], machines(5, 2.0))
    shrunk = select_plans([bid("a"), bid("b")], machines(5, 2.0), shrink=True)
    assert fits(machines(5, 2.0), needs_of(shrunk.plans))
    assert None not in shrunk.plans.values()


@pytest.mark.parametrize("field", ["n_sample_left", "priority", "deadline_s"])
def test_a_bid_below_zero_is_refused(field):
    with pytest.raises(InvalidValueError, match=f"{field} must be >= 0"):
        replace(bid("a"), **{field: -1})
