"""How a step is shared among members: always whole, and slower members get no more than faster ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.master.external.job.step_shares import WINDOW_S, Part, Speeds, by_speed, even
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.batch_cost import BatchCost

SPEC = JobSpec("shared", batch_size=64)
SPEEDS = st.lists(st.floats(10, 1000), min_size=1, max_size=6)


def names(n):
    return [f"worker-{i}" for i in range(n)]


@given(st.integers(1, 12), st.integers(1, 4000))
def test_a_global_batch_is_the_same_whoever_trains(n, global_batch):
    spec = replace(SPEC, global_batch=global_batch)
    parts = even(spec, names(n))
    total = sum(part.n_row for part in parts.values())
    n_batch = max(round(global_batch / 64), 1)
    if n_batch >= n:  # mini-batches of the job's size, as many as come nearest
        assert total == 64 * n_batch
        assert {part.size for part in parts.values()} == {64}
    else:
        assert total == max(global_batch, n), "a member has at least a row"
    rows = [part.n_row for part in parts.values()]
    assert max(rows) - min(rows) <= (64 if n_batch >= n else 1)


def test_without_a_global_batch_each_member_has_one_batch_of_the_job():
    assert even(SPEC, names(2)) == {"worker-0": Part(64), "worker-1": Part(64)}


@pytest.mark.parametrize("solution", [SolutionName.LB_BSP, SolutionName.ANTDT_DD])
@given(speeds=SPEEDS)
def test_parts_by_speed_sum_to_the_batch_and_are_no_slower(solution, speeds):
    spec = replace(SPEC, stragglers=solution)
    members = names(len(speeds))
    now = even(spec, members)
    known = dict(zip(members, speeds, strict=True))
    parts = by_speed(spec, members, known, now)
    assert sum(part.n_row for part in parts.values()) == 64 * len(speeds)

    def slowest_s(each):
        return max(part.n_row / known[node] for node, part in each.items())

    assert slowest_s(parts) <= slowest_s(now)
    if solution is SolutionName.ANTDT_DD:
        assert all(part.size <= 64 for part in parts.values())
    else:
        assert all(part.times == 1 for part in parts.values())


def test_a_member_of_half_the_speed_gets_half_as_much():
    spec = replace(SPEC, stragglers=SolutionName.LB_BSP)
    parts = by_speed(spec, names(2), {"worker-0": 200.0, "worker-1": 100.0}, even(spec, names(2)))
    assert [part.n_row for part in parts.values()] == [86, 42]


def test_speeds_are_told_once_all_members_have_computed_long_enough():
    speeds = Speeds()
    for at in range(6):
        speeds.hear("a", 100 * at, at * WINDOW_S / 4)
        speeds.hear("b", 50 * at, at * WINDOW_S / 4)
        found = speeds.take(["a", "b"])
        assert (found is not None) == (at == 4)
        if found is not None:
            assert found == {"a": pytest.approx(400 / WINDOW_S), "b": pytest.approx(200 / WINDOW_S)}
    speeds.hear("a", 10, 0.1)  # another program of that node
    speeds.hear("a", 1000, 10.1)
    speeds.hear("b", 1000, 50.0)
    assert speeds.take(["a", "b"]) == {"a": pytest.approx(99.0), "b": pytest.approx(800 / 46)}


def test_measured_costs_let_a_slow_member_have_less_than_half_a_batch():
    spec = replace(SPEC, stragglers=SolutionName.ANTDT_DD)
    members, speeds = names(2), {"worker-0": 400.0, "worker-1": 100.0}
    now = even(spec, members)
    costs = {"worker-0": BatchCost(1e-5, 1 / 400), "worker-1": BatchCost(1e-5, 1 / 100)}
    guessed, known = by_speed(spec, members, speeds, now), by_speed(spec, members, speeds, now, costs)
    assert guessed["worker-1"].n_row == 32, "half of the job's batch, as nothing was measured"
    assert known["worker-1"].n_row in {25, 26}
    assert known["worker-0"].size <= 64, "what fits is not known: no more than the job's own batch"
    of_ours = replace(spec, sync=Sync.ALLREDUCE)
    assert by_speed(of_ours, members, speeds, now, costs)["worker-0"].size > 64


def test_a_high_fixed_cost_leaves_a_choice_of_sizes():
    spec = replace(SPEC, stragglers=SolutionName.ANTDT_DD)
    members, speeds = names(2), {"worker-0": 200.0, "worker-1": 100.0}
    costs = {node: BatchCost(0.15 * 64 / v, 0.85 / v) for node, v in speeds.items()}
    assert all(cost.least > 64 for cost in costs.values())
    parts = by_speed(spec, members, speeds, even(spec, members), costs)
    assert parts["worker-0"].n_row > 64 > parts["worker-1"].n_row


@given(
    speeds=st.lists(st.floats(10, 1000), min_size=2, max_size=5),
    fixed_s=st.floats(1e-6, 1.0),
    row_s=st.floats(1e-6, 1e-2),
)
def test_shares_by_costs_sum_to_the_batch_and_fit(speeds, fixed_s, row_s):
    spec = replace(SPEC, stragglers=SolutionName.ANTDT_DD)
    members = names(len(speeds))
    costs = dict.fromkeys(members, BatchCost(fixed_s, row_s))
    parts = by_speed(spec, members, dict(zip(members, speeds, strict=True)), even(spec, members), costs)
    assert sum(part.n_row for part in parts.values()) == 64 * len(speeds)
    assert all(1 <= part.size <= 64 for part in parts.values())
