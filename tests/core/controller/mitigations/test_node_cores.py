"""Sizes of single nodes that the controller proposes: by use under `nearchus`, and for a PS that is hot."""

from __future__ import annotations

import pytest
from support.plans.restarted_controller import difference, restarted
from support.plans.slow_world import WINDOW_S, SlowJob, actions, plan_of

from dlrover_nb.core.controller.settings import ControllerSettings
from dlrover_nb.core.errors import CapacityError
from dlrover_nb.core.structs.decisions.actions import KillRestart, MoveBuckets, SetSize
from dlrover_nb.core.structs.decisions.decisions import Verdict
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import PlanApplied

WIDE = ResourcePlan(RolePlan(2, 1.0, 512), RolePlan(2, 1.0, 512))
LONG_S = 4 * WINDOW_S


def uneven(**fields) -> SlowJob:
    """Return a job whose first PS uses a third of its cores, and the second all that it can get."""
    given = {"plan": WIDE, "policy": "nearchus", "stragglers": SolutionName.NONE}
    given |= {"settings": ControllerSettings()} | fields
    job = SlowJob(n_worker=2, **given)
    job.demand["ps-0"] = 0.3
    job.demand["ps-1"] = 5.0
    return job


def accepted(job: SlowJob) -> SetSize:
    action = job.open.action.action
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.end()
    return action


@pytest.mark.release
def test_idle_cores_of_a_ps_go_to_the_one_that_uses_all_of_its_own(words):
    job = uneven()
    job.run(60)
    first = accepted(job)
    assert (first.node, first.role, first.memory_mib) == ("ps-0", Role.PS, 512)
    assert first.cpu == 0.38, "it uses four fifths of that"
    job.run(60)
    second = accepted(job)
    assert second.node == "ps-1"
    assert second.cpu == 1.62
    job.run(LONG_S)
    assert job.open is None, "each has what it uses"
    assert "ps-0 uses 30 %" in job.view.mitigations[0].why
    assert job.view.mitigations[0].why == words
    job.check_replay()


@pytest.mark.release
def test_auto_mode_moves_cores_alone_and_stops():
    job = uneven(mode=Mode.AUTO)
    ordered: list[str] = []
    for _ in range(30):
        ordered += actions(job.run(20))
        if job.controller.acting:
            job.end()
    assert [words.split()[1] for words in ordered] == ["ps-0", "ps-1"]
    assert sum(each.cpu for each in job.own.values()) <= 2.0


@pytest.mark.more
def test_the_plan_waits_until_cores_have_moved_within_a_role_and_goes_on_where_they_may_not():
    job = uneven()
    job.run(LONG_S)
    assert job.open is not None
    assert not job.view.proposals
    job.decide(Verdict.REJECT, proposal=job.open.id)
    job.run(LONG_S)
    assert job.open is None, "it is not asked for again"
    assert job.view.proposals, "the plan changes instead"


@pytest.mark.more
def test_a_size_that_the_cluster_could_not_give_is_not_asked_for_again():
    job = uneven()
    job.run(60)
    job.decide(Verdict.ACCEPT, proposal=job.open.id)
    job.end("no machine has room")
    job.run(3 * LONG_S)
    assert [each.status for each in job.view.mitigations] == ["failed"]


@pytest.mark.more
def test_a_size_that_a_user_gave_is_left_alone_until_the_plan_changes():
    job = uneven()
    job.order(SetSize("ps-0", Role.PS, 2.0, 512))
    job.end()
    job.run(LONG_S)
    assert job.open is None
    job.plan = ResourcePlan(RolePlan(2, 1.0, 512), RolePlan(2, 2.0, 512))
    job.set_own({})
    job.tell(PlanApplied(job.at_s, job.plan, 0.1))
    job.run(LONG_S)
    assert job.open.action.action.node == "ps-0"


@pytest.mark.more
@pytest.mark.parametrize(
    "fields", [{"policy": "fixed-plan"}, {"mode": Mode.MANUAL}, {"pins": Pins(ps_cpu=1.0)}]
)
def test_no_cores_move_under_another_policy_by_hand_or_against_a_pin(fields):
    job = uneven(**fields)
    job.run(LONG_S)
    assert not job.view.mitigations


@pytest.mark.more
def test_a_restarted_controller_knows_the_sizes_of_nodes():
    job = uneven()
    job.run(60)
    accepted(job)
    again = restarted(job.controller)
    assert difference(again, job.controller) == ""
    job.run(20)
    assert difference(restarted(job.controller), job.controller) == ""


# a hot PS


def hot(**fields) -> SlowJob:
    """Return a job whose second PS is slow, as it uses all its cores, and has given buckets away."""
    given = {"plan": ResourcePlan(RolePlan(4, 1.0, 512), RolePlan(2, 1.0, 512)), "mode": Mode.AUTO} | fields
    job = SlowJob(**given)
    job.slow["ps-1"] = 1.8
    job.demand |= {"ps-0": 0.5, "ps-1": 9.0}
    job.run(LONG_S)
    job.end()
    assert job.view.mitigations[-1].action.action == MoveBuckets("ps-1")
    return job


def next_action(job: SlowJob) -> object:
    for _ in range(20):
        job.run(10)
        if job.controller.acting:
            return job.controller.acting.action.action
    raise AssertionError(job.view.story)


@pytest.mark.more
def test_a_ps_that_is_hot_with_fewer_buckets_too_gets_the_cores_that_it_needs(words):
    job = hot()
    assert next_action(job) == SetSize("ps-1", Role.PS, 2.0, 512)
    assert "1.00 of 1 cores" in job.view.mitigations[-1].why
    assert job.view.mitigations[-1].why == words
    job.end()
    del job.slow["ps-1"]
    job.run(LONG_S)
    assert [str(each.status) for each in job.view.mitigations] == ["applied", "applied"]


@pytest.mark.more
@pytest.mark.parametrize("fields", [{"bounds": PlanBounds(quota_cpu=6.5)}, {"budget_per_hour": 0.25}])
def test_a_hot_ps_that_may_have_no_more_cores_is_replaced(fields):
    assert next_action(hot(**fields)) == KillRestart("ps-1", Role.PS)


@pytest.mark.more
def test_a_hot_ps_whose_size_the_cluster_cannot_change_is_replaced():
    job = hot()
    assert isinstance(next_action(job), SetSize)
    job.end("no machine has room")
    assert next_action(job) == KillRestart("ps-1", Role.PS)


@pytest.mark.more
def test_a_slow_ps_with_idle_cores_is_replaced():
    job = hot()
    job.demand["ps-1"] = 0.4
    job.run(10)
    assert next_action(job) == KillRestart("ps-1", Role.PS)


def test_a_size_beyond_the_quota_is_refused_with_both_numbers(error_words):
    job = SlowJob(bounds=PlanBounds(quota_cpu=2.0))
    job.run(10)
    with error_words(CapacityError) as caught:
        job.order(SetSize("ps-1", Role.PS, 1.25, 512))
    assert "2.5 of 2 cores" in str(caught.value)
    job.order(SetSize("ps-1", Role.PS, 0.5, 512))


def test_an_undo_leads_to_the_size_of_the_plan_once_an_exception_has_ended():
    job = SlowJob()
    job.run(5)
    job.order(SetSize("ps-1", Role.PS, 0.5, 512))
    job.end()
    job.set_own({})  # a plan that failed ended it
    job.order(SetSize("ps-1", Role.PS, 0.75, 512))
    job.end()
    plan = plan_of().ps
    assert job.view.undo.action.action == SetSize("ps-1", Role.PS, plan.cpu, plan.memory_mib)
