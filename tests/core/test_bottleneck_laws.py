"""Laws of the bottleneck's measures, and of the search for a plan."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlrover_nb.core.bottleneck import (
    Bottleneck,
    JobUse,
    NodeUse,
    PlanUse,
    Remedy,
    Step,
    diagnose,
    fixed_roles,
    fruitless,
    is_stable,
    next_plan,
    node_moves,
    remedy_between,
    start_plan,
    wanted,
    way_back,
)
from dlrover_nb.core.bottleneck.use import efficiency
from dlrover_nb.core.structs.job.tuning import Nearchus
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

PAPER = Nearchus()
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
BOUNDS = PlanBounds(24, 8, SIZES, SIZES)
GBIT = 1e9 / 8
cores = st.floats(0.1, 64)
shares = st.floats(0.02, 1.0)


def plan(workers: int, worker_cpu: float, ps: int, ps_cpu: float) -> ResourcePlan:
    return ResourcePlan(RolePlan(workers, worker_cpu, 1024), RolePlan(ps, ps_cpu, 1024))


def used(
    of: ResourcePlan, worker: float, ps: float, *, link: float | None = None, full: int = 0, n: int = 30
) -> JobUse:
    """Return steady use: each role's share of its cores, and `full` of `n` samples of a PS on a full link."""
    nodes = [
        NodeUse(f"{role}-{i}", role, of.role(role).cpu, (of.role(role).cpu * share,) * n, (0.0,) * n)
        for role, share in ((Role.WORKER, worker), (Role.PS, ps))
        for i in range(of.role(role).count)
    ]
    if full:
        at = next(i for i, node in enumerate(nodes) if node.role is Role.PS)
        nodes[at] = replace(nodes[at], bytes_per_s=(GBIT,) * full + (0.0,) * (n - full))
    return JobUse(of, tuple(nodes), (), link)


some_nodes = st.lists(st.tuples(st.sampled_from(Role), cores, shares), min_size=2, max_size=12).filter(
    lambda rows: {role for role, _, _ in rows} == set(Role)
)


def nodes_of(rows) -> tuple[NodeUse, ...]:
    return tuple(NodeUse(str(i), role, a, (a * share,) * 5) for i, (role, a, share) in enumerate(rows))


@given(some_nodes, st.floats(0.01, 100))
def test_the_efficiency_of_a_job_does_not_depend_on_the_unit_of_a_core(rows, factor):
    scaled_rows = [(role, a * factor, share) for role, a, share in rows]
    assert efficiency(nodes_of(scaled_rows)) == pytest.approx(efficiency(nodes_of(rows)))


def test_a_start_is_one_ps_and_two_workers_on_a_part_of_the_budget():
    assert start_plan(plan(7, 1, 3, 1), BOUNDS, 100, 0.15) == plan(2, 4, 1, 4)


@given(st.floats(0.5, 500))
def test_a_start_is_within_the_budget(budget):
    assert start_plan(plan(4, 1, 2, 1), BOUNDS, budget, 0.15).total_cpu <= budget + 1e-9


def test_a_job_is_stable_once_five_samples_of_its_use_vary_by_less_than_five_percent():
    calm = used(plan(2, 1, 1, 1), 0.9, 0.5, n=5)
    assert is_stable(calm)
    assert not is_stable(replace(calm, nodes=calm.nodes[1:])), "a node has not reported"
    assert not is_stable(used(plan(2, 1, 1, 1), 0.9, 0.5, n=4))
    first, *rest = calm.nodes
    assert not is_stable(replace(calm, nodes=(replace(first, used_cores=(0.2, 0.9, 0.2, 0.9, 0.2)), *rest)))
    assert not is_stable(used(plan(2, 1, 1, 1), 0.0, 0.0)), "what it uses is not measured"


@pytest.mark.parametrize(("full", "is_psn"), [(0, False), (3, False), (4, True)])
def test_the_network_of_a_ps_is_full_where_more_than_a_tenth_of_thirty_samples_say_so(full, is_psn, words):
    found = diagnose(used(plan(2, 4, 1, 1), 0.6, 0.6, link=GBIT, full=full))
    assert found.bottleneck is (Bottleneck.PS_NETWORK if is_psn else Bottleneck.MAXIMUM_UTILIZATION)
    if is_psn:
        assert found.words == words


def test_without_the_capacity_of_a_link_no_network_is_claimed_and_the_sentence_says_so(words):
    found = diagnose(used(plan(2, 4, 1, 1), 0.6, 0.6, full=30))
    assert found.bottleneck is Bottleneck.MAXIMUM_UTILIZATION
    assert found.words == words
    assert "set link_gbit_per_s" in found.words


def test_nearly_all_cores_used_is_no_bottleneck_and_idle_cores_that_cannot_move_do_not_count(words):
    small = used(plan(2, 1, 1, 0.25), 0.97, 0.2)
    assert diagnose(small).bottleneck is Bottleneck.MAXIMUM_UTILIZATION
    fixed = fixed_roles(small, BOUNDS, Pins())
    assert fixed == {Role.PS}
    assert diagnose(small, fixed=fixed).words == words
    idle = used(plan(2, 1, 1, 1), 0.97, 0.1)
    assert fixed_roles(idle, BOUNDS, Pins()) == frozenset()
    assert fixed_roles(idle, BOUNDS, Pins(worker_cpu=1.0)) == {Role.WORKER}


def test_ps_give_up_no_cores_where_the_next_smaller_size_is_too_small_for_what_they_do():
    assert fixed_roles(used(plan(4, 4, 1, 2), 0.97, 0.5), BOUNDS, Pins()) == {Role.PS}
    assert fixed_roles(used(plan(4, 4, 1, 2), 0.97, 0.3), BOUNDS, Pins()) == frozenset()


def test_a_ps_that_uses_all_its_cores_is_the_bottleneck_of_workers_that_wait(words):
    waits = used(plan(4, 4, 2, 1), 0.7, 1.0, link=GBIT)
    assert diagnose(waits).bottleneck is Bottleneck.PS_COMPUTE
    assert diagnose(waits).words == words
    busy = used(plan(4, 4, 2, 1), 0.9, 1.0)
    assert wanted(diagnose(busy)) == (Remedy.PS_CORES, Remedy.ADD_PS)
    assert next_plan(busy, BOUNDS, Pins(), lambda p: p.total_cpu <= 24).plan == plan(4, 4, 2, 2)
    assert next_plan(busy, BOUNDS, Pins(ps_cpu=1.0), lambda _: True).plan == plan(4, 4, 3, 1)
    one_hot = replace(
        busy, nodes=tuple(replace(n, used_cores=(0.3,) * 5) if n.node == "ps-1" else n for n in busy.nodes)
    )
    assert diagnose(one_hot).bottleneck is Bottleneck.PS_COMPUTE, "all wait for the slowest PS"
    assert diagnose(used(plan(4, 4, 2, 1), 0.97, 1.0)).bottleneck is Bottleneck.NONE, "no worker waits"
    full = used(plan(4, 4, 2, 1), 0.7, 1.0, link=GBIT, full=4)
    assert diagnose(full).bottleneck is Bottleneck.PS_NETWORK


def test_a_change_in_vain_is_not_tried_again_until_another_one_bears_fruit():
    begun = [Step(None, 4.0), Step(Remedy.ADD_WORKER, 4.0001), Step(Remedy.MOVE_CORES, 3.9)]
    assert fruitless(begun, PAPER) == {Remedy.ADD_WORKER, Remedy.MOVE_CORES}
    assert fruitless([*begun, Step(Remedy.ADD_PS, 5.0)], PAPER) == frozenset()
    assert fruitless([*begun, Step(None, 1.0)], PAPER) == frozenset()


@pytest.mark.parametrize(("used_cores", "in_vain"), [(4.7, {Remedy.ADD_WORKER}), (4.9, set())])
def test_the_cores_of_a_node_that_was_added_must_be_used(used_cores, in_vain):
    assert fruitless([Step(None, 4.0, 5.0), Step(Remedy.ADD_WORKER, used_cores, 6.0)], PAPER) == in_vain


def test_a_ps_that_frees_workers_bears_fruit_though_they_were_in_vain_before():
    """Workers beside a full link were idle; one more PS uses their cores, of which it brought none."""
    steps = [Step(None, 57, 59), Step(Remedy.MORE_WORKERS, 62, 90), Step(Remedy.ADD_PS, 82, 92)]
    assert fruitless(steps[:2], PAPER) == {Remedy.MORE_WORKERS}
    assert fruitless(steps, PAPER) == frozenset()


def test_a_job_grows_by_more_workers_of_the_size_that_they_use():
    """On a ladder of doubles a job of 2 workers ended at 3 of half the size: with fewer cores than before."""
    law = Truth(80.0, 1e6, 0.05)
    plans = search(law, 100, Pins())
    assert law.use(plans[-1], ()).cores() > 0.9 * 100
    assert len(plans) <= 12
    counts = [each.worker.count for each in plans]
    assert counts == sorted(counts)
    assert max(b / a for a, b in itertools.pairwise(counts)) <= 2


@given(st.sampled_from(SIZES[1:]), st.integers(1, 12))
def test_workers_are_spread_with_the_cores_that_they_have(cpu, n_worker):
    now = plan(n_worker, cpu, 1, 0.25)
    option = next_plan(used(now, 0.7, 0.5), BOUNDS, Pins(), lambda _: True)
    if 2 * n_worker <= 24:
        assert option.plan.worker.total_cpu == now.worker.total_cpu
        assert (option.plan.worker.cpu, remedy_between(now, option.plan)) == (cpu / 2, Remedy.ADD_WORKER)


def test_workers_whose_number_is_pinned_are_not_made_smaller():
    now = plan(2, 4, 1, 1)
    assert next_plan(used(now, 0.7, 0.7), BOUNDS, Pins(workers=2), lambda _: True) is None
    assert next_plan(used(now, 0.7, 0.7), BOUNDS, Pins(), lambda _: True).plan == plan(4, 2, 1, 1)


def test_a_search_that_has_ended_goes_back_to_a_plan_that_was_clearly_faster():
    before, now = plan(2, 1, 1, 1), plan(4, 1, 1, 1)
    use = replace(used(now, 0.5, 0.5), earlier=(PlanUse(before, 2.0),))
    heavier = replace(now, worker=replace(now.worker, memory_mib=2048))
    more = replace(use, plan=heavier)
    assert way_back(use, {before.axes: 110.0, now.axes: 100.0}, lambda _: True) == (
        before,
        pytest.approx(0.1),
    )
    plan_back, _ = way_back(more, {before.axes: 110.0, now.axes: 100.0}, lambda _: True)
    assert plan_back.worker.memory_mib == 2048, "memory that grew since stays"
    assert way_back(use, {before.axes: 104.0, now.axes: 100.0}, lambda _: True) is None
    assert way_back(use, {before.axes: 110.0, now.axes: 100.0}, lambda _: False) is None
    assert way_back(use, {now.axes: 100.0}, lambda _: True) is None


def test_one_more_ps_is_the_last_choice_where_the_ps_are_busy_themselves():
    busy = diagnose(used(plan(2, 4, 1, 4), 0.85, 0.9))
    assert wanted(busy) == (Remedy.ADD_WORKER, Remedy.ADD_PS)
    assert wanted(diagnose(used(plan(2, 4, 1, 4), 0.7, 0.3))) == (Remedy.ADD_WORKER,)
    assert wanted(diagnose(used(plan(2, 4, 1, 4), 0.9, 0.3))) == (Remedy.MOVE_CORES, Remedy.ADD_WORKER)


def test_workers_that_use_their_cores_grow_although_the_ps_leave_some_idle():
    idle_ps = diagnose(used(plan(2, 4, 1, 4), 0.97, 0.3))
    assert idle_ps.bottleneck is Bottleneck.MAXIMUM_UTILIZATION
    assert wanted(idle_ps) == (Remedy.SCALE_UP, Remedy.MORE_WORKERS, Remedy.MOVE_CORES)


# the search on any job whose use grows with its cores


class Truth:
    """A job whose workers use fewer of their cores the more they have, up to what the PS can carry."""

    def __init__(self, half_cores: float, per_ps: float, ps_share: float) -> None:
        self.half_cores, self.per_ps, self.ps_share = half_cores, per_ps, ps_share

    def use(self, of: ResourcePlan, earlier: tuple[PlanUse, ...]) -> JobUse:
        alone = 1 / (1 + of.worker.cpu / self.half_cores)
        most = self.per_ps * of.ps.count / of.worker.total_cpu
        is_full = most < alone
        ps = min(self.ps_share * min(alone, most) * of.worker.total_cpu / of.ps.total_cpu, 1.0)
        return replace(used(of, min(alone, most), ps, link=GBIT, full=30 if is_full else 0), earlier=earlier)


truths = st.builds(Truth, st.floats(0.5, 200), st.floats(0.5, 50), st.floats(0.01, 0.5))
pins = st.builds(
    Pins,
    workers=st.none() | st.just(2),
    ps=st.none() | st.just(1),
    worker_cpu=st.none() | st.just(1.0),
    ps_cpu=st.none() | st.just(0.5),
)


def search(truth: Truth, budget: float, held: Pins) -> list[ResourcePlan]:
    now, earlier = held.applied(plan(2, 1, 1, 0.5)), ()
    plans = [now]
    for _ in range(2000):
        use = truth.use(now, earlier)
        option = next_plan(use, BOUNDS, held, lambda p: p.total_cpu <= budget)
        if option is None:
            return plans
        earlier, now = (*earlier, PlanUse(now, use.cores())), option.plan
        plans.append(now)
    raise AssertionError("the search does not end")


@given(truths, st.floats(3, 150), pins)
def test_a_search_ends_and_keeps_to_budget_bounds_and_pins(truth, budget, held):
    plans = search(truth, budget, held)
    _, *rest = plans
    assert all(p.total_cpu <= budget for p in rest)
    assert all(held.allows(p) for p in plans)
    assert all(p.worker.count <= 24 and p.ps.count <= 8 for p in plans)
    assert all({p.worker.cpu, p.ps.cpu} <= {*SIZES} for p in rest)
    assert len(set(plans)) == len(plans), "no plan is tried twice"


def test_a_job_that_uses_its_cores_grows_to_its_budget_by_halves():
    plans = search(Truth(1e6, 1e6, 0.05), 40, Pins())
    assert 30 <= plans[-1].total_cpu <= 40
    assert len(plans) < 15


def test_a_job_with_a_full_link_gets_ps_until_it_is_not_full():
    plans = search(Truth(1e6, 3.0, 0.05), 20, Pins())
    assert plans[-1].ps.count >= 4
    assert plans[-1].worker.total_cpu >= 12


# cores of single nodes

demands = st.lists(st.floats(0.05, 6.0), min_size=2, max_size=8)


def role_use(role: Role, each: float, wanted_cores: list[float], has: list[float], **fields) -> JobUse:
    """Return the use of a role whose nodes would use so many cores, if they had them; the other is even."""
    count = {role: len(has), (Role.WORKER if role is Role.PS else Role.PS): 1}
    of = plan(count[Role.WORKER], each, count[Role.PS], each)
    own = [
        NodeUse(f"{role}-{i}", role, cpu, (min(cpu, want),) * 5, (), 1024)
        for i, (cpu, want) in enumerate(zip(has, wanted_cores, strict=True))
    ]
    other = next(each for each in Role if each is not role)
    beside = NodeUse(f"{other}-0", other, of.role(other).cpu, (of.role(other).cpu,) * 5, (), 1024)
    return JobUse(of, (*own, beside), **fields)


@given(st.sampled_from(Role), demands, st.sampled_from(SIZES))
def test_cores_move_within_a_role_until_nobody_is_idle_beside_one_that_is_short(role, wants, each):
    has = [each] * len(wants)
    for n in itertools.count():
        assert n < 12 * len(wants), "it comes to an end"
        found = node_moves(role_use(role, each, wants, has), BOUNDS, Pins())
        if not found:
            break
        action = found[0].action
        i = int(action.node.rpartition("-")[2])
        assert action.node == f"{role}-{i}"
        assert action.memory_mib == 1024
        assert action.cpu >= min(has[i], wants[i]) - 0.01 or action.cpu >= has[i], "no used core is taken"
        has[i] = action.cpu
        assert has[i] >= SIZES[0]
        assert sum(has) <= each * len(wants) + 1e-6, "the cores of the plan are the most"
    short = [i for i, want in enumerate(wants) if want >= has[i]]
    idle = sum(max(has[i] - max(wants[i] / 0.8, SIZES[0]), 0.0) for i in range(len(has)))
    assert not short or idle <= 0.2 * max(has) * len(has) + 0.02, (has, wants)
    spare = (each * len(wants) - sum(has)) / max(len(short), 1)
    assert not short or spare <= 0.2 * max(has) + 0.02, "nor beside cores that nobody has"


@given(st.lists(st.floats(0.3, 4.0), min_size=2, max_size=8))
def test_nodes_that_are_short_alike_get_equal_parts_of_what_is_free(has):
    each = sum(has) / len(has) + 1.0
    found = node_moves(role_use(Role.PS, each, [99.0] * len(has), has), BOUNDS, Pins())
    assert found
    smallest = min(range(len(has)), key=has.__getitem__)
    assert found[0].action.cpu > has[int(found[0].action.node.rpartition("-")[2])]
    sizes = {move.action.node: move.action.cpu for move in found}
    assert min(sizes.values()) >= has[smallest]
    assert f"ps-{smallest}" in sizes


@given(st.sampled_from(Role), demands)
def test_no_cores_move_within_a_role_that_is_pinned_or_has_a_node_that_keeps_its_size(role, wants):
    has = [2.0] * len(wants)
    pins = Pins(worker_cpu=2.0) if role is Role.WORKER else Pins(ps_cpu=2.0)
    assert not node_moves(role_use(role, 2.0, wants, has), BOUNDS, pins)
    pinned = frozenset({f"{role}-{len(wants) - 1}"})
    assert not node_moves(role_use(role, 2.0, wants, has, pinned=pinned), BOUNDS, Pins())


def test_a_move_says_who_uses_how_much(words):
    (first, *_) = node_moves(role_use(Role.PS, 1.0, [0.3, 4.0], [1.0, 1.0]), BOUNDS, Pins())
    assert (first.action.node, first.action.cpu) == ("ps-0", 0.38)
    assert first.reason == words


def with_gpus(use: JobUse, busy: float) -> JobUse:
    nodes = (replace(each, gpu_busy=(busy,) * 9 if each.role is Role.WORKER else ()) for each in use.nodes)
    return replace(use, nodes=tuple(nodes))


@given(shares, shares, st.floats(0, 1))
def test_busy_gpus_limit_a_job_whatever_its_cores_do_and_idle_ones_change_no_verdict(worker, ps, busy):
    use = used(plan(2, 1.0, 1, 1.0), worker, ps, link=GBIT)
    plain, found = diagnose(use), diagnose(with_gpus(use, busy))
    assert plain is not None
    assert found is not None
    assert (found.bottleneck is Bottleneck.GPU) == (busy >= 0.9)
    if found.bottleneck is not Bottleneck.GPU:
        assert replace(found, gpu=None) == plain
    assert "GPU" not in plain.words


def test_gpus_that_compute_all_the_time_ask_for_workers_who_bring_others(words):
    found = diagnose(with_gpus(used(plan(2, 1.0, 1, 1.0), 0.2, 0.3), 0.97))
    assert found is not None
    assert wanted(found) == (Remedy.MORE_WORKERS,)
    assert found.words == words
