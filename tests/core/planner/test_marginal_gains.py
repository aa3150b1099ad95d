"""What the next core and GiB would give, and swaps: laws over random steps, and an explanation's marginals."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs.builders import BETTER_PLAN, NOW_PLAN, candidate, plan

from dlrover_nb.core.planner.availability.marginal_gains import (
    LEAST_GAIN,
    MOST_SWAPS,
    Step,
    best_per_core,
    best_per_gib,
    steps_of,
    swaps_of,
)
from dlrover_nb.core.planner.availability.placement import machines_of
from dlrover_nb.core.structs.decisions.query_answers import Explanation, Marginal, Weighed
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Need

STEPS = st.builds(
    Step,
    job=st.sampled_from(["a", "b", "c"]),
    owner=st.just("ada"),
    what=st.just("1 more worker"),
    cores=st.sampled_from([-1.0, -0.5, 0.0, 0.5, 1.0]),
    memory_mib=st.sampled_from([-1024, -512, 0, 512, 1024]),
    samples_per_s=st.floats(-100, 100),
    share=st.floats(-0.5, 0.5),
    refusal=st.sampled_from(["", "no room"]),
)
MANY = st.lists(STEPS, max_size=12)


@given(MANY)
def test_each_job_stands_once_with_its_best_step_and_the_best_job_first(steps):
    for best, value in ((best_per_core(steps), "per_core"), (best_per_gib(steps), "per_gib")):
        values = [getattr(step, value) for step in best]
        assert len({step.job for step in best}) == len(best)
        assert values == sorted(values, reverse=True)
        for step in best:
            others = [getattr(s, value) for s in steps if s.job == step.job]
            assert getattr(step, value) == max(v for v in others if v is not None)


@given(MANY)
def test_a_swap_fits_into_what_it_frees_and_gains(steps):
    found = swaps_of(steps)
    assert len(found) <= MOST_SWAPS
    for swap in found:
        assert swap.giver.job != swap.taker.job
        assert swap.giver.cores + swap.taker.cores <= 0
        assert swap.giver.memory_mib + swap.taker.memory_mib <= 0
        assert swap.share >= LEAST_GAIN
        assert not swap.giver.refusal
    assert [s.share for s in found] == sorted((s.share for s in found), reverse=True)


def test_the_steps_of_a_job_are_its_marginals_as_shares_of_its_speed():
    more, base = candidate(plan(2, 1)), candidate(NOW_PLAN)
    gained = more.prediction.samples_per_s - base.prediction.samples_per_s
    marginals = (
        Marginal("1 more worker", Weighed(more.plan, more), gained, 0.1),
        Marginal("unknown", Weighed(BETTER_PLAN, None), None, None),
    )
    (step,) = steps_of("ads", "ada", Explanation(NOW_PLAN, None, base, base, "", marginals=marginals))
    assert (step.cores, step.memory_mib, step.samples_per_s) == (0.5, 1024, gained)
    assert step.share == pytest.approx(gained / base.prediction.samples_per_s)
    assert step.per_core == pytest.approx(step.share / 0.5)
    assert step.per_gib == pytest.approx(step.share)
    assert steps_of("ads", "ada", Explanation(NOW_PLAN, None, None, None, "nothing is measured")) == ()


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.tuples(st.sampled_from([0.5, 1.0, 3.0]), st.just(512))),
        max_size=9,
    )
)
def test_placing_keeps_the_sums_and_overfills_no_machine(held):
    capacity = Capacity((NodeShape(4.0, 4096, 2), NodeShape(2.0, 1024)))
    machines = machines_of(capacity, [(job, Need(*need)) for job, need in held])
    assert len(machines) == 3
    for machine in machines:
        assert machine.free_cpu >= 0
        assert machine.free_memory_mib >= 0
    wanted = sum(need[0] for _, need in held)
    used = sum(machine.used_cpu for machine in machines)
    assert used == pytest.approx(wanted) if wanted <= 6 else used <= capacity.total_cpu + 1e-6


def test_a_node_that_no_machine_has_room_for_is_spread_over_several():
    machines = machines_of(
        Capacity((NodeShape(2.0, 1024, 2),)),
        [("a", Need(1.5, 512)), ("b", Need(1.5, 512)), ("c", Need(1.0, 512))],
    )
    assert [m.free_cpu for m in machines] == [0.0, 0.0]
    assert sum(m.used_memory_mib for m in machines) == 1536
    assert {job for m in machines for job, _, _ in m.nodes} == {"a", "b", "c"}


def test_steps_that_free_nothing_are_no_gift():
    up = Step("a", "ada", "1 more worker", 1.0, 512, 10.0, 0.5)
    down = Step("b", "bob", "1 fewer worker", -1.0, -512, -1.0, -0.1)
    assert [s.share for s in swaps_of([up, down])] == [pytest.approx(0.4)]
    assert swaps_of([up, replace(down, memory_mib=0)]) == ()
    assert swaps_of([up, replace(down, refusal="pinned")]) == ()
    assert swaps_of([up, replace(down, share=-0.6)]) == ()
