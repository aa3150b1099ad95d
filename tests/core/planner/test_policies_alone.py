"""What nearchus and qore advise in one situation, without a job that runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each
from test_deadline import MEASURED, MODELS, SPEED, at, base, span

from dlrover_nb.core.bottleneck import JobUse, NodeUse, PlanUse
from dlrover_nb.core.planner.advising.advice import Limits
from dlrover_nb.core.planner.analysis import analyse
from dlrover_nb.core.planner.policies import nearchus, qore
from dlrover_nb.core.planner.policies.policy import PolicyContext
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.plan.bounds import PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role


def used(of: ResourcePlan, share: float, *earlier: PlanUse) -> JobUse:
    """Return steady use of a share of all cores."""
    nodes = tuple(
        NodeUse(f"{role}-{i}", role, of.role(role).cpu, (share * of.role(role).cpu,) * 30, (0.0,) * 30)
        for role in Role
        for i in range(of.role(role).count)
    )
    return JobUse(of, nodes, earlier)


def test_nearchus_gives_more_to_a_job_that_uses_all_its_cores() -> None:
    analysis = at(None)
    advice = nearchus(analysis, SPEED, PolicyContext(use=used(MEASURED[1], 1.0)))
    assert advice is not None
    assert advice.kind is ProposalKind.EXPLORE
    assert advice.candidate.plan.total_cpu > MEASURED[1].total_cpu
    assert advice.why.startswith("By nearchus: ")


@for_each(
    "context",
    [
        PolicyContext(),
        PolicyContext(use=used(MEASURED[2], 1.0)),
        PolicyContext(use=used(MEASURED[1], 1.0), may_explore=False),
    ],
    ids=["use unknown", "use of another plan", "experiments at their end"],
)
def test_nearchus_changes_nothing_without_the_use_of_the_present_plan(context: PolicyContext) -> None:
    assert nearchus(at(None), SPEED, context) is None


def test_nearchus_leaves_a_job_alone_that_ends_soon() -> None:
    analysis, context = at(None), PolicyContext(use=used(MEASURED[1], 1.0))
    left_s = analysis.current.finish_s
    assert nearchus(analysis, replace(SPEED, min_left_s=left_s), context) is not None
    assert nearchus(analysis, replace(SPEED, min_left_s=left_s * 1.001), context) is None


@pytest.mark.parametrize("is_faster", [True, False])
def test_nearchus_goes_back_to_a_faster_plan_once_nothing_is_left_to_try(*, is_faster: bool) -> None:
    slow, fast = MEASURED[:2]
    before, now = (fast, slow) if is_faster else (slow, fast)
    s, both = base(now=now), PlanBounds(2, 1, (1.0,), (0.5,))
    analysis = analyse(replace(s, spec=replace(s.spec, bounds=both)), model=MODELS[0])
    advice = nearchus(analysis, SPEED, PolicyContext(use=used(now, 1.0, PlanUse(before, 2.0))))
    assert (None if advice is None else advice.candidate.plan) == (before if is_faster else None)


@pytest.mark.parametrize("share", [0.5, 0.8, 1.0])
def test_qore_gives_a_late_job_a_plan_that_is_more_probable_to_be_in_time(share: float) -> None:
    analysis = at(share * span(0))
    advice = qore(analysis, SPEED, PolicyContext())
    assert advice is not None
    assert advice.candidate.in_time > max(analysis.current.in_time, 0.8)


@pytest.mark.parametrize("share", [2.0, 5.0])
def test_qore_takes_from_an_early_job_what_it_does_not_need(share: float) -> None:
    analysis = at(share * span(0))
    advice = qore(analysis, SPEED, PolicyContext())
    assert advice is not None
    assert advice.candidate.cost < analysis.current.cost
    assert advice.candidate.in_time >= analysis.situation.deadline_chance


def test_qore_changes_nothing_without_a_deadline_or_when_the_job_is_just_in_time() -> None:
    assert qore(at(None), SPEED, PolicyContext()) is None
    assert qore(at(1.2 * span(0)), SPEED, PolicyContext()) is None


@pytest.mark.parametrize("is_bounded", [False, True])
def test_a_total_budget_binds_where_it_is_a_bound_and_the_cost_until_the_end_is_known(
    *, is_bounded: bool
) -> None:
    limits, candidate = Limits(within_total=is_bounded), at(None).current
    assert limits.affords(replace(candidate, end_cost=None), 1.0)
    assert limits.affords(replace(candidate, end_cost=2.0), None)
    assert limits.affords(replace(candidate, end_cost=1.0), 1.0)
    assert limits.affords(replace(candidate, end_cost=2.0), 1.0) != is_bounded
