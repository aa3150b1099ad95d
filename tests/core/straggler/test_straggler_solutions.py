"""What each solution proposes for which findings."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.straggler.situation import Situation, WorkerState
from dlrover_nb.core.straggler.solutions import SOLUTIONS
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
)
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.training.stragglers import Pace, Spread, Straggler

# A busy machine is no mistake: no test fails because it takes long.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

PS = tuple(f"ps-{i}" for i in range(3))


def found(node, pace=Pace.TRANSIENT, ratio=3.0):
    role = Role.PS if node.startswith("ps") else Role.WORKER
    return Straggler(node, role, pace, ratio, 1.0, 300.0, 0.0, "ratio")


def workers(*speeds, size=100):
    return tuple(WorkerState(f"worker-{i}", size, v) for i, v in enumerate(speeds))


def situation(*speeds, sync=Sync.BSP, **more):
    return Situation(sync, workers(*speeds), PS, **more)


def actions(name, findings, where):
    return [proposed.action for proposed in SOLUTIONS[name](tuple(findings), where)]


def test_a_transient_straggler_gets_a_smaller_batch_and_is_not_restarted(words):
    (proposed,) = SOLUTIONS["antdt-nd"]((found("worker-2"),), situation(100.0, 100.0, 40.0))
    assert proposed.action == AdjustBatches((("worker-0", 125), ("worker-1", 125), ("worker-2", 50)))
    assert proposed.reason == words


def test_a_persistent_straggler_is_restarted_unless_the_cluster_is_busy():
    slow = found("worker-2", Pace.PERSISTENT)
    assert actions("antdt-nd", [slow], situation(100.0, 100.0, 40.0))[0] == KillRestart(
        "worker-2", Role.WORKER
    )
    busy = actions("antdt-nd", [slow], situation(100.0, 100.0, 40.0, is_busy=True))
    assert [type(action) for action in busy] == [AdjustBatches]


@pytest.mark.parametrize("solution", SOLUTIONS)
def test_where_batches_are_fixed_no_worker_gets_another_or_is_left_out(solution):
    slow = [found("worker-2", Pace.PERSISTENT)]
    fixed = actions(solution, slow, situation(100.0, 100.0, 40.0, is_fixed=True))
    assert all(isinstance(action, KillRestart) for action in fixed)
    assert bool(fixed) == (solution == "antdt-nd")


def test_a_worker_whose_smaller_batch_makes_up_for_it_is_not_restarted():
    even = tuple(
        replace(w, size=size) for w, size in zip(workers(100.0, 100.0, 40.0), (125, 125, 50), strict=True)
    )
    assert actions("antdt-nd", [found("worker-2", Pace.PERSISTENT)], Situation(Sync.BSP, even, PS)) == []


def test_a_recovered_worker_gets_its_batch_back_without_a_finding():
    uneven = tuple(
        replace(w, size=size) for w, size in zip(workers(100.0, 100.0, 100.0), (125, 125, 50), strict=True)
    )
    (action,) = actions("antdt-nd", [], Situation(Sync.BSP, uneven, PS))
    assert action == AdjustBatches((("worker-0", 100), ("worker-1", 100), ("worker-2", 100)))


def test_a_small_gain_changes_nothing_for_antdt_but_does_for_lb_bsp():
    almost = situation(100.0, 100.0, 97.0)
    assert actions("antdt-nd", [found("worker-2")], almost) == []
    assert [type(action) for action in actions("lb-bsp", [], almost)] == [AdjustBatches]


@pytest.mark.parametrize("sync", [Sync.ASP, Sync.SSP])
def test_without_iterations_in_common_only_restarts_are_left(sync):
    where = situation(100.0, 100.0, 20.0, sync=sync)
    both = [found("worker-2"), found("worker-2", Pace.PERSISTENT)]
    assert actions("antdt-nd", both, where) == [KillRestart("worker-2", Role.WORKER)]
    assert actions("lb-bsp", both, where) == actions("backup-workers", both, where) == []


def test_a_persistent_ps_is_relieved_and_replaced_only_if_it_is_slow_still():
    slow = found("ps-1", Pace.PERSISTENT)
    assert actions("antdt-nd", [slow], situation(1.0, 1.0)) == [MoveBuckets("ps-1")]
    relieved = situation(1.0, 1.0, relieved_ps=frozenset({"ps-1"}))
    assert actions("antdt-nd", [slow], relieved) == [KillRestart("ps-1", Role.PS)]
    assert actions("antdt-nd", [], relieved) == []
    assert actions("antdt-nd", [slow], replace(relieved, is_busy=True)) == []


def test_a_transient_ps_and_the_only_ps_are_let_alone():
    assert actions("antdt-nd", [found("ps-1")], situation(1.0, 1.0)) == []
    only = replace(situation(1.0, 1.0), ps=("ps-0",))
    assert actions("antdt-nd", [found("ps-0", Pace.PERSISTENT)], only) == []


def test_as_many_backups_as_are_slow_and_none_when_they_recover():
    many = situation(*[1.0] * 20)
    slow = [found(f"worker-{i}") for i in range(7)]
    assert actions("backup-workers", slow[:1], many) == [BackupWorkers(1)]
    assert actions("backup-workers", slow, many) == [BackupWorkers(3)]
    assert actions("backup-workers", slow, replace(many, n_backup=3)) == []
    assert actions("backup-workers", [], replace(many, n_backup=3)) == [BackupWorkers(0)]


def test_an_old_gradient_counts_less_until_its_worker_recovers():
    where = situation(1.0, 1.0, sync=Sync.ASP)
    lower = AdjustRates((("worker-0", 1.0), ("worker-1", 0.5)))
    assert actions("adjust-lr", [found("worker-1", ratio=2.0)], where) == [lower]
    lowered = replace(where, workers=(where.workers[0], replace(where.workers[1], rate=0.5)))
    assert actions("adjust-lr", [found("worker-1", ratio=2.0)], lowered) == []
    assert actions("adjust-lr", [], lowered) == [AdjustRates((("worker-0", 1.0), ("worker-1", 1.0)))]
    assert actions("adjust-lr", [found("worker-1")], situation(1.0, 1.0)) == []


def test_kinds_of_devices_get_full_mini_batches_once():
    def node(i, device, v, size, times=1):
        return WorkerState(f"worker-{i}", size, v, 32, 128, device, times)

    even = tuple(node(i, "V100", 300.0, 96) for i in range(4)) + tuple(
        node(4 + i, "P100", 100.0, 96) for i in range(4)
    )
    (action,) = actions("antdt-dd", [], Situation(Sync.BSP, even))
    assert dict(action.samples) == {f"worker-{i}": 144 if i < 4 else 48 for i in range(8)}
    assert action.accumulate == tuple((f"worker-{i}", 2) for i in range(4))
    done = tuple(
        replace(w, size=dict(action.sizes)[w.node], times=dict(action.accumulate).get(w.node, 1))
        for w in even
    )
    assert actions("antdt-dd", [], Situation(Sync.BSP, done)) == []


speeds = st.lists(st.none() | st.floats(0.1, 1e3), min_size=1, max_size=9)


@patient
@given(
    st.sampled_from(sorted(SOLUTIONS)),
    speeds,
    st.sampled_from(Sync),
    st.booleans(),
    st.lists(st.sampled_from([*(f"worker-{i}" for i in range(9)), *PS]), unique=True),
    st.sampled_from(Pace),
)
def test_every_solution_answers_everything_and_keeps_the_global_batch(name, v, sync, is_busy, slow, pace):
    where = situation(*v, sync=sync, is_busy=is_busy, relieved_ps=frozenset({"ps-2"}))
    proposed = SOLUTIONS[name](tuple(found(node, pace) for node in slow), where)
    assert all(item.reason and item.action.words for item in proposed)
    for item in proposed:
        if isinstance(item.action, AdjustBatches):
            assert item.action.total == sum(worker.samples for worker in where.workers)
            assert {node for node, _ in item.action.sizes} == {worker.node for worker in where.workers}


def test_workers_that_differ_for_good_get_sizes_without_being_stragglers():
    spread = Spread("worker-0", "worker-2", 2.0, 600.0)
    where = replace(situation(100.0, 100.0, 50.0), spread=spread)
    (proposed,) = SOLUTIONS["antdt-nd"]((), where)
    assert isinstance(proposed.action, AdjustBatches)
    assert "differ for good" in proposed.reason
    assert actions("antdt-nd", [], replace(where, spread=None)) == []


def test_sizes_do_not_follow_the_noise_of_speeds_once_nobody_is_slow():
    sizes = (90, 110, 100)
    noisy = tuple(replace(w, size=size) for w, size in zip(workers(85.0, 110.0, 100.0), sizes, strict=True))
    assert actions("antdt-nd", [], Situation(Sync.BSP, noisy, PS)) == []
    far = tuple(
        replace(w, size=size) for w, size in zip(workers(95.0, 105.0, 100.0), (150, 80, 70), strict=True)
    )
    assert actions("antdt-nd", [], Situation(Sync.BSP, far, PS)) == [
        AdjustBatches((("worker-0", 100), ("worker-1", 100), ("worker-2", 100)))
    ]


def test_a_worker_that_is_slow_still_keeps_its_small_batch_though_it_is_no_finding_any_more():
    leveled = tuple(
        replace(w, size=size) for w, size in zip(workers(100.0, 100.0, 40.0), (125, 125, 50), strict=True)
    )
    assert actions("antdt-nd", [], Situation(Sync.BSP, leveled, PS)) == []
    changed = tuple(replace(w, size=100) if w.node == "worker-0" else w for w in leveled[:1]) + leveled[1:]
    assert (
        actions("antdt-nd", [], Situation(Sync.BSP, (*changed[:2], replace(changed[2], size=75)), PS)) != []
    )


def test_backup_workers_stay_until_all_keep_up():
    late = situation(100.0, 100.0, 20.0, n_backup=1)
    unknown = situation(100.0, 100.0, None, n_backup=1)
    assert actions("backup-workers", [], late) == actions("backup-workers", [], unknown) == []
    again = situation(100.0, 100.0, 90.0, n_backup=1)
    assert actions("backup-workers", [], again) == [BackupWorkers(0)]


def test_workers_that_differ_for_good_are_kinds_of_devices_without_being_told(words):
    spread = Spread("worker-0", "worker-3", 2.0, 600.0)
    where = situation(100.0, 98.0, 52.0, 50.0, spread=spread)
    (proposed,) = SOLUTIONS["antdt-dd"]((), where)
    samples = dict(proposed.action.samples)
    assert proposed.action.total == 400
    assert samples["worker-0"] == samples["worker-1"] > 1.8 * samples["worker-2"]
    assert samples["worker-2"] == samples["worker-3"]
    assert proposed.reason == words
    assert actions("antdt-dd", [], replace(where, spread=None)) == []


# what mini-batches cost, as measured


def measured(i, size, cost, *, times=1, busy=1.0):
    """Return a worker that is as fast as its costs say, or slower where others keep its device busy."""
    speed = size * times / (busy * cost.seconds(size, times))
    return WorkerState(f"worker-{i}", size, speed, cost.least, cost.most, times=times, cost=cost)


FAST, SLOW = BatchCost(0.002, 0.001, 130), BatchCost(0.002, 0.003, 130)


def test_a_batch_that_does_not_fit_is_computed_as_several_mini_batches():
    spread = Spread("worker-0", "worker-1", 3.0, 600.0)
    where = Situation(Sync.BSP, (measured(0, 128, FAST), measured(1, 128, SLOW)), PS, spread=spread)
    (action,) = actions("antdt-dd", [], where)
    assert action.accumulate == (("worker-0", 2),)
    assert action.total == 256
    assert dict(action.samples)["worker-0"] > 180
    assert max(size for _, size in action.sizes) <= 130
    assert actions("lb-bsp", [], where)[0].sizes == (("worker-0", 130), ("worker-1", 126))


def test_where_batches_fit_one_each_is_faster_than_several_with_their_fixed_cost():
    spread = Spread("worker-0", "worker-1", 3.0, 600.0)
    costs = [replace(cost, fixed_s=0.05, most=10_000) for cost in (FAST, SLOW)]
    where = Situation(
        Sync.BSP, tuple(measured(i, 500, cost) for i, cost in enumerate(costs)), PS, spread=spread
    )
    (action,) = actions("antdt-dd", [], where)
    assert not action.accumulate
    assert dict(action.sizes)["worker-0"] > 700


costs = st.builds(
    BatchCost,
    st.floats(0, 0.1),
    st.floats(1e-5, 0.01),
    st.none() | st.integers(64, 4096),
)


@patient
@given(st.lists(costs, min_size=2, max_size=6), st.integers(16, 600), st.floats(0.5, 3.0))
def test_full_mini_batches_keep_their_bounds_and_are_never_slower_than_now(costs, size, busy):
    spread = Spread("worker-0", "worker-1", 2.0, 600.0)
    workers = tuple(measured(i, size, cost, busy=busy) for i, cost in enumerate(costs))
    where = Situation(Sync.BSP, workers, PS, spread=spread)
    try:
        found = actions("antdt-dd", [], where)
    except InvalidValueError:
        assert any(w.most is not None for w in workers), "only memory can be in the way"
        return
    for action in found:
        times = dict(action.accumulate)
        assert action.total == size * len(workers)
        assert all(w.most is None or dict(action.sizes)[w.node] <= w.most for w in workers)
        before_s = max(w.seconds(size) for w in workers)
        after_s = max(w.seconds(dict(action.sizes)[w.node], times.get(w.node, 1)) for w in workers)
        assert after_s < before_s


@given(costs)
def test_the_saturation_point_is_where_the_fixed_part_is_a_small_share(cost):
    assert 1 <= cost.least <= (cost.most or cost.least)
    if cost.most is None:
        assert cost.fixed_s <= 0.1001 * cost.seconds(cost.least)
        assert cost.least == 1 or cost.fixed_s > 0.0999 * cost.seconds(cost.least - 1)


def test_a_ps_that_no_worker_waits_for_is_left_alone():
    where = situation(100.0, 100.0, exchange_s=0.9)
    slow = replace(found("ps-1", Pace.PERSISTENT), iter_s=0.003, peers_s=0.001)
    assert actions("antdt-nd", [slow], where) == []
    waited = replace(slow, iter_s=0.8, peers_s=0.2)
    assert actions("antdt-nd", [waited], where) == [MoveBuckets("ps-1")]
    assert actions("antdt-nd", [waited], replace(where, exchange_s=0.01)) == [], "they compute meanwhile"
