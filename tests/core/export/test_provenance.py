"""What an export finds out about the plan in a job: who decided, on which prediction, in place of what."""

from __future__ import annotations

from dataclasses import replace

from support.jobs.builders import BETTER_PLAN, NOW_PLAN, START_S, plan, proposal, snapshot
from support.jobs.exports import OPTIONS, WRITTEN
from support.words import lines_with

from dlrover_nb.core.export.exporters import EXPORTERS
from dlrover_nb.core.export.gathering import documents_in
from dlrover_nb.core.export.imported import read_export
from dlrover_nb.core.export.provenance import provenance_of
from dlrover_nb.core.export.schemas import check
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.views.snapshot import PlanMarker
from dlrover_nb.core.yamltext import to_yaml

ACCEPT = Decision(Verdict.ACCEPT, "ada", START_S + 295, proposal="p2", why="faster", id="d2")


def test_a_plan_that_is_only_proposed_has_a_prediction_and_no_decision() -> None:
    job = snapshot()
    told = provenance_of(job, BETTER_PLAN)
    assert (told.decision, told.proposal, told.before) == (None, "p2", NOW_PLAN)
    assert told.prediction == job.proposals[-1].candidate.prediction
    assert told.fit == job.fit


def test_an_accepted_plan_names_who_accepted_it_and_what_ran_before() -> None:
    job = snapshot(decisions=(ACCEPT,), target=BETTER_PLAN)
    assert provenance_of(job, BETTER_PLAN).decision == ACCEPT
    assert provenance_of(job, BETTER_PLAN).before == NOW_PLAN
    ran = replace(job, markers=(*job.markers, PlanMarker(START_S + 299, BETTER_PLAN, 1.0, None)))
    assert provenance_of(ran, BETTER_PLAN).before == NOW_PLAN


def test_the_latest_decision_for_the_plan_counts_and_no_rejection() -> None:
    again = Decision(Verdict.SCALE, "bob", START_S + 298, plan=BETTER_PLAN, id="d3")
    reject = Decision(Verdict.REJECT, "eve", START_S + 299, proposal="p2", id="d4")
    assert provenance_of(snapshot(decisions=(ACCEPT, again, reject)), BETTER_PLAN).decision == again


def test_an_override_keeps_the_proposal_that_it_answered() -> None:
    own = plan(3, 2)
    override = Decision(Verdict.OVERRIDE, "ada", START_S + 295, proposal="p2", plan=own, id="d2")
    job = snapshot(decisions=(override,))
    told = provenance_of(job, own)
    assert (told.decision, told.prediction, told.fit) == (override, None, None)
    text = to_yaml(*EXPORTERS["scaleplan"](job.spec, own, told, OPTIONS))
    assert "dlrover-nb/proposal: p2" in text


def test_a_plan_of_which_nothing_is_known_tells_nothing() -> None:
    job = snapshot(proposals=(), decisions=(), markers=())
    told = provenance_of(job, job.target)
    assert (told.decision, told.prediction, told.proposal, told.before) == (None, None, "", None)


def test_what_comes_from_a_simulation_says_so(words) -> None:
    job = snapshot(simulated=True)
    text = to_yaml(*EXPORTERS["elasticjob"](job.spec, BETTER_PLAN, provenance_of(job, BETTER_PLAN), OPTIONS))
    assert lines_with(text, "dlrover-nb/simulated") == words
    assert read_export(text).provenance.simulated
    assert read_export(text).unknown == (words,)


def test_the_whole_way_from_a_job_to_files_and_back() -> None:
    job = snapshot(proposals=(proposal("p2"),), decisions=(ACCEPT,))
    told = provenance_of(job, BETTER_PLAN)
    for kind in WRITTEN:
        text = to_yaml(*EXPORTERS[kind](job.spec, BETTER_PLAN, told, OPTIONS))
        assert check(documents_in(text)) == ()
        found = read_export(text)
        assert (found.kind, found.job, found.plan, found.provenance) == (kind, job.spec, BETTER_PLAN, told)
