import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, check_fits, without
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan, diff

role_plans = st.builds(
    RolePlan,
    count=st.integers(1, 50),
    cpu=st.floats(0.01, 64, allow_nan=False),
    memory_mib=st.integers(64, 1 << 20),
    gpu=st.integers(0, 8),
)
plans = st.builds(ResourcePlan, worker=role_plans, ps=role_plans)


@given(plans, plans)
def test_a_difference_leads_from_the_one_to_the_other(current, target):
    for role in Role:
        of_role = [
            (change.before, change.after) for change in diff(current, target).changes if change.role is role
        ]
        is_same = current.role(role) == target.role(role)
        assert of_role == ([] if is_same else [(current.role(role), target.role(role))])
    assert bool(diff(current, target)) == (current != target)


@given(plans)
def test_no_difference_is_empty_and_false(plan):
    assert not diff(plan, plan)


@given(plans, plans)
def test_a_change_names_only_roles_that_change(current, target):
    changed = {c.role for c in diff(current, target).changes}
    assert changed == {r for r in Role if current.role(r) != target.role(r)}


@for_each(
    ("values", "word"),
    [
        ((0, 1, 512), "node count"),
        ((1, 0, 512), "cpu"),
        ((1, -1, 512), "cpu"),
        ((1, float("nan"), 512), "cpu"),
        ((1, float("inf"), 512), "cpu"),
        ((1, 1, 0), "memory"),
        ((10**400, 1, 512), "node count must be <= 100,000"),
        ((1, 1e308, 512), "cpu per node must be <= 10,000"),
        ((1, 1, 10**12), "memory_mib per node must be <= 1,073,741,824"),
        ((1, 1, 512, -1), "gpu per node must be >= 0"),
        ((1, 1, 512, 1025), "gpu per node must be <= 1,024"),
    ],
)
def test_impossible_nodes_are_refused_by_name(values, word):
    with pytest.raises(InvalidValueError, match=word):
        RolePlan(*values)


def test_bounds_sort_their_steps_and_refuse_impossible_ones(error_words):
    assert PlanBounds(worker_cpus=(1, 0.5, 1)).worker_cpus == (0.5, 1.0)
    with pytest.raises(InvalidValueError, match="worker_cpus"):
        PlanBounds(worker_cpus=(0.0, 1.0))
    with error_words(InvalidValueError):
        PlanBounds(max_workers=10**9)


@given(plans)
def test_a_plan_fits_on_machines_made_for_its_nodes(plan):
    shapes = tuple(NodeShape(p.cpu, p.memory_mib, p.count, p.gpu) for p in (plan.worker, plan.ps))
    check_fits(plan, Capacity(tuple(sorted(shapes, key=lambda s: (s.cpu, s.memory_mib), reverse=True))))


@given(plans)
def test_a_plan_larger_than_everything_does_not_fit(plan):
    half = NodeShape(plan.total_cpu / 2, plan.total_memory_mib, gpu=plan.total_gpu)
    with pytest.raises(CapacityError, match=r"would fit|not even 1|no machine holds|PS of this size fit"):
        check_fits(plan, Capacity((half,)))


def test_what_fits_in_sum_but_on_no_machine_does_not_fit(error_words):
    plan = ResourcePlan(RolePlan(1, 3, 512), RolePlan(1, 1, 512))
    with error_words(CapacityError):
        check_fits(plan, Capacity((NodeShape(2, 4096, 2),)))
    check_fits(plan, Capacity((NodeShape(4, 4096),)))


@for_each(
    ("worker", "ps"),
    [
        (RolePlan(1, 3, 512), RolePlan(1, 0.5, 512)),
        (RolePlan(1, 1, 512), RolePlan(1, 0.5, 9000)),
        (RolePlan(1, 1, 512), RolePlan(3, 1, 512)),
        (RolePlan(1, 1.5, 512), RolePlan(1, 1, 512)),
        (RolePlan(5, 0.5, 512), RolePlan(1, 0.5, 512)),
    ],
)
def test_a_plan_that_does_not_fit_is_told_what_would(worker, ps, error_words):
    with error_words(CapacityError):
        check_fits(ResourcePlan(worker, ps), Capacity((NodeShape(2, 4096),)))


def test_a_plan_without_machines_does_not_fit():
    with pytest.raises(CapacityError, match="none"):
        check_fits(ResourcePlan(RolePlan(1, 1, 512), RolePlan(1, 1, 512)), Capacity(()))


GPU_WORKERS = ResourcePlan(RolePlan(2, 1, 512, 1), RolePlan(1, 1, 512))
MIXED = (NodeShape(8, 8192), NodeShape(2, 4096, gpu=1))


def test_nodes_with_gpus_are_placed_before_others_take_the_cores_beside_them():
    check_fits(GPU_WORKERS, Capacity((NodeShape(8, 8192), NodeShape(2, 4096, 2, gpu=1))))
    small = ResourcePlan(RolePlan(1, 2, 512, 1), RolePlan(4, 2, 512))
    check_fits(small, Capacity(MIXED))


@for_each(
    ("shapes", "words"),
    [
        (
            (NodeShape(64, 65536),),
            "the cluster has no GPUs, and the job asks for 2; set gpu of its roles to 0",
        ),
        (MIXED, r"2 cores, 4096 MiB and 1 GPU.*3 cores, 1536 MiB and 2 GPUs; beside these PS, 1 worker of"),
        ((NodeShape(0.5, 4096, 9, gpu=4),), r"no machine holds one worker of 1 cores, 512 MiB and 1 GPU"),
    ],
)
def test_gpus_that_machines_lack_are_named(shapes, words):
    with pytest.raises(CapacityError, match=words):
        check_fits(GPU_WORKERS, Capacity(shapes))


def test_gpus_follow_a_plan_through_pins_and_differences(words):
    pins = Pins(workers=5, ps_memory_mib=1024)
    assert pins.applied(GPU_WORKERS).gpus == (1, 0)
    assert str(pins.applied(GPU_WORKERS).worker) == words
    assert GPU_WORKERS.effort == pytest.approx(3 + 1.5 / 8 + 20)
    assert without(Capacity(MIXED), [RolePlan(1, 1, 512, 1).need]) == Capacity(
        (NodeShape(8, 8192), NodeShape(1, 3584))
    )


def test_ten_tenths_of_a_core_are_one_core():
    check_fits(ResourcePlan(RolePlan(9, 0.1, 64), RolePlan(1, 0.1, 64)), Capacity((NodeShape(1, 1024),)))
