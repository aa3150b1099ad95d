"""What changes of plan cost, learnt from the jobs of a cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from test_warm_start import FAMILY, plan

from dlrover_nb.core.driver.job_start import initial_plan, submitted
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.past_jobs import FitSummary, PastJob, TermKnowledge, TransitionKind
from dlrover_nb.core.warmstart.start_plan import usual_pauses

HERE = replace(FAMILY, cluster="here")
MOVES = TransitionKind.MOVES
TERMS = (TermKnowledge("compute", 1e-4, 1e-6, identified=True),)


def job(*pauses: tuple[str, float], traits=HERE) -> PastJob:
    fit = FitSummary(0.0, TERMS, 0.02, 3, 30, 1e5, 16.0, 512, pauses)
    return PastJob(traits, plan(1, 1), plan(2, 1), fit)


pauses = st.lists(st.tuples(st.sampled_from(TransitionKind), st.floats(0, 1e4)), max_size=6)


@given(st.lists(pauses, max_size=5))
def test_what_is_usual_lies_among_what_was_measured(many):
    usual = dict(usual_pauses([job(*own) for own in many], "here"))
    for kind in TransitionKind:
        seen = [s for own in many for known, s in own if known == kind]
        assert (kind in usual) == bool(seen)
        if seen:
            assert min(seen) <= usual[kind] <= max(seen)


def test_each_job_counts_once_and_other_clusters_do_not():
    busy, calm = job(*[(MOVES, 9.0)] * 50), job((MOVES, 1.0))
    elsewhere = job((MOVES, 500.0), traits=replace(HERE, cluster="there"))
    past = [busy, calm, job((MOVES, 2.0)), elsewhere, job((TransitionKind.RESTARTS, 60.0))]
    assert usual_pauses(past, "here") == ((MOVES, 2.0), (TransitionKind.RESTARTS, 60.0))
    assert usual_pauses(past, "nowhere") == ()
    assert usual_pauses([PastJob(HERE, plan(1, 1), plan(1, 1), None)], "here") == ()


def test_a_new_job_is_told_what_is_usual_on_its_cluster():
    first = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 1024))
    capacity = Capacity((NodeShape(8.0, 64_000),))
    begun = initial_plan(
        JobSpec("ads", plan=first), HERE, capacity, [job((MOVES, 40.0), (TransitionKind.WORKERS, 3.0))]
    )
    assert dict(submitted(begun, capacity, 0.0, folder="").pauses) == {
        MOVES: 40.0,
        TransitionKind.WORKERS: 3.0,
    }
