"""Taking decisions back: undo twice is where one was, and only the latest change can be undone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.plans.replayed import replay

from dlrover_nb.core.errors import CapacityError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import ProposalKind, ProposalStatus, Verdict, version_of
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import Role, RolePlan
from dlrover_nb.core.structs.views.events import Decided, PhaseChanged, PlanFailed, RoomChanged, Scale

REFUSED = (StaleDecisionError, InvalidValueError, NotFoundError, CapacityError)


def undo(job, **changes):
    back = replace(job.view.undo, by="ada", at_s=job.at_s, **changes)
    return job.obey(job.tell(Decided(job.at_s, back)))


def plan_of(job, workers=2, worker_cpu=0.5, ps_mib=512):
    own = job.spec.plan
    return replace(own, worker=RolePlan(workers, worker_cpu, 1024), ps=replace(own.ps, memory_mib=ps_mib))


def state(job):
    view = job.view
    return job.controller.queries().context.target, view.mode, view.pins


STEPS = st.one_of(
    st.builds(lambda n, mib: ("plan", n, mib), st.integers(1, 3), st.sampled_from([512, 640])),
    st.builds(lambda mode: ("mode", mode), st.sampled_from([Mode.MANUAL, Mode.SUGGEST])),
    st.builds(lambda n: ("pin", n), st.none() | st.integers(1, 3)),
)


def take(job, step):
    """Take a decision, if it can be."""
    try:
        match step:
            case ("plan", n, mib):
                job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, n, ps_mib=mib)))
            case ("mode", mode):
                job.decide(Verdict.MODE, mode=mode)
            case ("pin", n):
                job.decide(Verdict.PIN, pins=Pins(workers=n))
    except REFUSED:
        return


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=1, max_size=6))
def test_undo_leads_back_and_undo_of_undo_forth(steps, make_job):
    job = make_job(mode=Mode.SUGGEST)
    before = now = state(job)
    for step in steps:
        take(job, step)
        before, now = (now, state(job)) if state(job) != now else (before, now)
    if before == now:
        assert job.view.undo is None
        return
    last = job.view.decisions[-1].id
    try:
        undo(job)
    except REFUSED:  # what held before cannot be any more: pinned otherwise meanwhile
        assert state(job) == now
        return
    assert state(job) == before
    assert job.view.decisions[-1].undoes == last
    undo(job)
    assert state(job) == now
    assert replay(job.journal, job.settings).view() == job.view


def test_nothing_decided_is_nothing_to_undo(job):
    assert job.view.undo is None
    with pytest.raises(NotFoundError, match="nothing to undo"):
        job.decide(Verdict.SCALE, plan=plan_of(job), undoes="d1")


def test_a_rejection_changes_nothing_that_could_be_undone(job):
    job.train(20)
    job.decide(Verdict.REJECT, proposal=job.open.id)
    assert job.view.undo is None


def test_an_undo_is_told_as_such(job, words):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job)))
    undo(job, why="too dear")
    assert "d2 undo of d1" in job.view.story[-3]
    assert job.view.story[-3] == words


def test_a_stale_undo_is_refused_and_says_who_did_what_since(job, error_words):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job)))
    seen = job.view.undo
    job.decide(Verdict.MODE, mode=Mode.AUTO)
    before = job.view
    with error_words(StaleDecisionError):
        job.tell(Decided(job.at_s, replace(seen, by="bob")))
    assert job.view == before


def test_an_undo_that_leads_elsewhere_is_refused(job):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job)))
    with pytest.raises(InvalidValueError, match="to undo d1 means"):
        undo(job, plan=plan_of(job, 3))


def test_the_undo_of_a_change_under_way_cancels_it_and_leaves_the_one_before_to_be_undone(job):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, 2)))
    n_outcome = len(job.view.outcomes)
    job.decide(Verdict.SCALE, plan=plan_of(job, 3))
    assert job.view.under_way == job.view.undo.undoes == "d2"
    undo(job, why="it waits for room")
    assert state(job)[0] == plan_of(job, 2)
    assert job.view.under_way == ""
    assert job.view.undo.undoes == "d1"
    assert [marker.plan for marker in job.view.markers][-1] == plan_of(job, 2)
    job.train(20)
    assert len(job.view.outcomes) <= n_outcome + 1  # of d1 alone: a cancelled change has none
    assert {outcome.decision for outcome in job.view.outcomes} <= {"d1"}


def test_a_cancelled_plan_that_fails_when_it_is_set_again_is_told(job):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, 2)))
    job.decide(Verdict.SCALE, plan=plan_of(job, 3))
    undo(job)
    job.decide(Verdict.SCALE, plan=plan_of(job, 3))
    job.tell(PlanFailed(job.at_s, plan_of(job, 3), "no room"))
    assert job.view.under_way == ""
    assert "no room" in job.view.story[-1]


def test_a_change_that_failed_leaves_the_one_before_to_be_undone(job):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, 2)))
    job.decide(Verdict.SCALE, plan=plan_of(job, 3))
    job.tell(PlanFailed(job.at_s, plan_of(job, 3), "no room"))
    assert job.view.undo.undoes == "d1"
    with pytest.raises(NotFoundError, match="d2 to undo"):
        undo(job, undoes="d2")
    undo(job)
    assert state(job)[0] == job.spec.plan


def test_there_is_no_way_back_over_a_plan_that_nobody_decided_on(job):
    job.decide(Verdict.MODE, mode=Mode.AUTO)
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, 2)))
    job.apply(plan_of(job, 3))
    assert job.view.undo.undoes == "d1"


def test_a_plan_that_finds_no_room_any_more_is_not_returned_to(make_job):
    job = make_job()
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job, 1, 0.25)))
    job.tell(RoomChanged(job.at_s, Capacity((NodeShape(0.5, 8000),))))
    with pytest.raises(CapacityError):
        undo(job)


def test_the_end_of_the_job_is_the_end_of_undo(job):
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job)))
    job.tell(PhaseChanged(job.at_s, JobPhase.SUCCEEDED))
    with pytest.raises(StaleDecisionError, match="need a running job"):
        undo(job)


def test_an_accepted_and_undone_plan_is_not_proposed_again_until_it_is_redone(job):
    job.train(20)
    accepted = job.open
    job.obey(job.decide(Verdict.ACCEPT, proposal=accepted.id))
    job.train(20)
    undo(job)
    job.train(120)
    later = job.view.proposals[int(accepted.id[1:]) :]
    assert accepted.candidate.plan not in [p.candidate.plan for p in later]
    assert state(job)[0] == job.spec.plan


def test_what_auto_mode_did_can_be_undone_and_it_does_not_do_it_again(make_job):
    bounds = PlanBounds(max_workers=2, max_ps=1, worker_cpus=(0.5,), ps_cpus=(0.25,))
    job = make_job(mode=Mode.AUTO, bounds=bounds, n_sample_total=10**9)
    job.train(60)
    better = state(job)[0]
    assert better != job.spec.plan
    assert [d.by for d in job.view.decisions] == ["auto"]
    undo(job)
    assert [o for o in job.train(300) if isinstance(o, Scale)] == []
    undo(job)
    assert state(job)[0] == better


def test_memory_that_was_given_and_taken_back_is_not_proposed_again_at_once(make_job):
    job = make_job(mode=Mode.SUGGEST)
    job.train(20)
    job.kill(Role.PS)
    assert job.open.kind is ProposalKind.PROTECT
    job.obey(job.decide(Verdict.ACCEPT, proposal=job.open.id))
    undo(job)
    job.train(30)
    kinds = {p.kind for p in job.view.proposals if p.status is ProposalStatus.PENDING}
    assert ProposalKind.PROTECT not in kinds


def test_the_version_of_a_job_is_its_latest_change_that_can_be_undone(job):
    job.train(5)
    assert version_of(job.view.undo) == "d0"
    job.obey(job.decide(Verdict.SCALE, plan=plan_of(job)))
    job.decide(Verdict.MODE, mode=Mode.MANUAL)
    assert version_of(job.view.undo) == "d2"


def test_a_decision_about_an_older_version_names_who_changed_what_since(job, error_words):
    job.train(5)
    job.decide(Verdict.SCALE, plan=plan_of(job), seen="d0")
    before = state(job)
    with error_words(StaleDecisionError) as caught:
        job.decide(Verdict.MODE, mode=Mode.MANUAL, seen="d0")
    assert all(part in str(caught.value) for part in ("d0", "d1", "by ada"))
    assert state(job) == before
    job.decide(Verdict.MODE, mode=Mode.MANUAL, seen="d1")
