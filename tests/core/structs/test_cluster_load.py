"""Laws of what machines have and who holds it: nothing is lost, and the unknown is never taken for zero."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.cluster.cluster_load import Amount, ClusterLoad, MachineLoad, by_job, total

AMOUNTS = st.builds(
    lambda steps, mib: Amount(steps / 100, mib), st.integers(0, 10_000), st.integers(0, 10**6)
)
HELD = st.lists(st.tuples(st.sampled_from("abc"), AMOUNTS), max_size=6)


@st.composite
def loads(draw, *, known=True):
    maybe = AMOUNTS if known else st.none() | AMOUNTS
    return ClusterLoad(
        tuple(
            MachineLoad(f"m{i}", draw(maybe), by_job(draw(HELD)), draw(maybe), draw(st.none() | AMOUNTS))
            for i in range(draw(st.integers(1, 5)))
        )
    )


def near(amount):
    return pytest.approx((amount.cpu, amount.memory_mib), abs=1e-5)


@given(loads())
def test_jobs_others_and_idle_less_what_is_over_are_what_there_is(load):
    for each in (load, *load.machines):
        sums = total((each.by_jobs, each.others, each.idle))
        assert (sums.cpu - each.over.cpu, sums.memory_mib - each.over.memory_mib) == near(each.has)


@given(loads())
def test_a_machine_is_never_idle_and_over_at_once(load):
    for machine in load.machines:
        assert min(machine.idle.cpu, machine.over.cpu) == 0
        assert min(machine.idle.memory_mib, machine.over.memory_mib) == 0


@given(loads())
def test_what_jobs_hold_is_the_same_by_job_and_by_machine(load):
    sums = total(amount for _, amount in load.jobs)
    assert (sums.cpu, sums.memory_mib) == near(load.by_jobs)
    assert [name for name, _ in load.jobs] == sorted({name for m in load.machines for name, _ in m.jobs})


@given(loads(known=False))
def test_a_sum_is_known_only_where_each_part_is(load):
    for name in ("has", "others", "idle", "used"):
        parts = [getattr(machine, name) for machine in load.machines]
        assert (getattr(load, name) is None) == (None in parts)


def test_a_cluster_without_visible_machines_has_nothing_known():
    assert ClusterLoad(()).has is None
    assert ClusterLoad(()).by_jobs == Amount(0, 0)


@for_each(("cpu", "mib"), [(-1, 0), (0, -1), (math.nan, 0), (0, math.inf)])
def test_amounts_are_finite_and_not_negative(cpu, mib, error_words):
    with error_words(InvalidValueError):
        Amount(cpu, mib)


def test_two_machines_of_one_name_are_refused(error_words):
    with error_words(InvalidValueError):
        ClusterLoad((MachineLoad("a", None), MachineLoad("a", None)))
