"""The sentence of a job in a list: that of its own view, as far as its summary can make it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders as b
from test_headline import BAD_ROWS, SITUATIONS

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.structs.decisions.decisions import ProposalKind
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.views.summary import UNKNOWN, JobSummary, summarize
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.rows.job_cells import Rank, line_of, needs
from dlrover_nb.widgets.rows.job_columns import DASHBOARD, JOBS, job_cells
from dlrover_nb.widgets.rows.job_sentence import job_sentence

SHORTER = {  # of which a summary does not hold enough
    "change": "Adding one worker and giving the parameter server 0.5 cores (0.25 now). Training goes on.",
    "as predicted": "Nothing to do: no other plan within your limits is clearly better.",
    "as predicted beside other work": "Nothing to do: no other plan within your limits is clearly better.",
    "missed": "Nothing to do: no other plan within your limits is clearly better.",
    "faster than predicted": "Nothing to do: no other plan within your limits is clearly better.",
    "nothing": "Nothing to do: no other plan within your limits is clearly better.",
    "starting": "Waiting for the first steps.",
}


def summary_of(name: str) -> JobSummary:
    """Return the summary of a situation; what has ended, ended at its time."""
    situation = SITUATIONS[name]
    ended_at_s = situation.at_s if situation.phase.is_final else None
    return summarize(replace(situation, ended_at_s=ended_at_s))


@pytest.mark.parametrize("name", [name for name in SITUATIONS if name not in SHORTER])
def test_a_list_says_of_a_job_what_its_own_view_says(name):
    assert job_sentence(summary_of(name)) == headline(SITUATIONS[name]).text


@pytest.mark.parametrize("name", SHORTER)
def test_where_a_summary_holds_less_the_list_says_less_and_nothing_else(name):
    assert job_sentence(summary_of(name)) == SHORTER[name]


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_sentence_survives_the_way_from_the_master(name):
    job = summary_of(name)
    assert job_sentence(from_json(to_json(job), JobSummary)) == job_sentence(job)


def test_a_master_of_before_tells_less_of_a_proposal_and_its_job_has_a_sentence_all_the_same():
    new = summarize(b.snapshot())
    change = replace(new.outlook.proposed, before=None, least=None, most=None)
    old = replace(new, outlook=replace(UNKNOWN, proposed=change, currency="USD"))
    assert job_sentence(old).count(".") >= 1
    assert "None" not in job_sentence(old)


@pytest.mark.parametrize("kind", ProposalKind)
def test_a_proposal_that_compares_with_nothing_has_a_sentence(kind):
    proposal = b.proposal(kind=kind)
    nothing = replace(proposal.baseline.prediction, samples_per_s=0.0, low=0.0, high=0.0)
    empty = replace(proposal, baseline=replace(proposal.baseline, prediction=nothing))
    words = job_sentence(summarize(b.snapshot(proposals=(empty,))))
    assert words
    assert "nan" not in words


def test_a_job_whose_master_has_never_answered_says_why(words):
    bare = replace(
        summarize(b.snapshot()), phase=JobPhase.STARTING, plan=None, live=False, message="ErrImagePull\nmore"
    )
    assert job_sentence(bare) == "ErrImagePull."
    assert job_sentence(replace(bare, message="")) == words


def test_a_silent_job_says_that_its_sentence_is_old():
    (at,) = (i for i, column in enumerate(DASHBOARD) if column.key == "sentence")
    job = summarize(b.snapshot())
    assert job_cells(DASHBOARD, line_of(job, 12.0))[at].text == f"Last heard: {job_sentence(job)}"
    assert job_cells(DASHBOARD, line_of(job))[at].text == job_sentence(job) == JOBS.row(job)["sentence"]


def test_rows_in_question_wait_for_a_person_as_a_proposal_does():
    job = summarize(b.snapshot(proposals=(), memory=(), quarantined=(BAD_ROWS,)))
    assert needs(job)[0] == (Rank.ANSWER, "rows in question")


def test_of_a_failure_the_first_line_is_said(words):
    failed = summarize(
        b.snapshot(phase=JobPhase.FAILED, message="no space left\nTraceback", ended_at_s=b.START_S + 90)
    )
    assert job_sentence(failed) == words
