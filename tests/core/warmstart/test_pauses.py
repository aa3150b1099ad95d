"""What changes of plan cost, learnt from the jobs of a cluster."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from test_warm_start import FAMILY, plan

from dlrover_nb.core.driver.job_start import initial_plan, submitted
from dlrover_nb.core.structs.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.job import JobSpec, Migration
from dlrover_nb.core.structs.past import FitSummary, PastJob, TermKnowledge
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
from dlrover_nb.core.warmstart.pauses import kept_pauses, usual_pauses

HERE = replace(FAMILY, cluster="here")
TERMS = (TermKnowledge("compute", 1e-4, 1e-6, identified=True),)


def job(*pauses: tuple[str, float], migration: Migration = Migration.SEAMLESS, traits=HERE) -> PastJob:
    fit = FitSummary(0.0, TERMS, 0.02, 3, 30, 1e5, 16.0, 512, kept_pauses(pauses, migration))
    return PastJob(traits, plan(1, 1), plan(2, 1), fit)


kinds = st.sampled_from(["workers", "moves"])
pauses = st.lists(st.tuples(kinds, st.floats(0, 1e4)), max_size=6)


@given(st.lists(pauses, max_size=5))
def test_what_is_usual_lies_among_what_was_measured(many):
    found = dict(usual_pauses([job(*own) for own in many], "here", Migration.SEAMLESS))
    for kind in ("workers", "moves"):
        seen = [s for own in many for known, s in own if known == kind]
        assert (kind in found) == bool(seen)
        if seen:
            assert min(seen) <= found[kind] <= max(seen)


def test_each_job_counts_once_and_other_clusters_and_ways_to_move_do_not():
    busy, calm = job(*[("moves", 9.0)] * 50), job(("moves", 1.0))
    elsewhere = job(("moves", 500.0), traits=replace(HERE, cluster="there"))
    restarted = job(("moves", 60.0), migration=Migration.RESTART)
    past = [busy, calm, job(("moves", 2.0)), elsewhere, restarted]
    assert usual_pauses(past, "here", Migration.SEAMLESS) == (("moves", 2.0),)
    assert usual_pauses(past, "here", Migration.RESTART) == (("moves", 60.0),)
    assert usual_pauses(past, "nowhere", Migration.SEAMLESS) == ()
    assert usual_pauses([PastJob(HERE, plan(1, 1), plan(1, 1), None)], "here", Migration.SEAMLESS) == ()


def test_a_new_job_is_told_what_is_usual_on_its_cluster():
    first = ResourcePlan(RolePlan(1, 0.5, 1024), RolePlan(1, 0.5, 1024))
    capacity = Capacity((NodeShape(8.0, 64_000),))
    begun = initial_plan(JobSpec("ads", plan=first), HERE, capacity, [job(("moves", 40.0), ("workers", 3.0))])
    assert dict(submitted(begun, capacity, 0.0, folder="").pauses) == {"moves": 40.0, "workers": 3.0}
