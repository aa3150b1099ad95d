"""What views show of a deadline: when it is, how probable it is to be met, and by what margin."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders as b
from support.jobs.outlooks import HOPELESS, MET, SAVED

from dlrover_nb.api.views.job_views import PlansView, SubmittedView
from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.deadline import margin_words
from dlrover_nb.widgets.blocks import Facts
from dlrover_nb.widgets.charts import front
from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.review_card import Link, header_html
from dlrover_nb.widgets.jobs.status import deadline_words, status_view, summary_facts


def due(outlook=MET, **changes):
    """Return a snapshot with a deadline an hour after its start; its candidates know their chances."""
    shown = b.snapshot(deadline=outlook, **changes)
    known = [replace(c, in_time=0.5 + 0.01 * i, margin_s=-90.0) for i, c in enumerate(shown.front.candidates)]
    fronted = replace(
        shown.front,
        candidates=tuple(known),
        current=replace(shown.front.current, in_time=0.4, margin_s=-600.0),
    )
    opened = shown.proposals[-1]
    better = replace(
        opened,
        candidate=replace(opened.candidate, in_time=0.97, margin_s=600.0),
        baseline=replace(opened.baseline, in_time=0.4, margin_s=-600.0),
    )
    return replace(
        shown,
        spec=replace(shown.spec, deadline_s=3600.0),
        front=fronted,
        proposals=(*shown.proposals[:-1], better),
    )


def test_a_chance_is_never_shown_as_certain(words):
    assert not {"0 %", "100 %"} & {chance_words(p) for p in (0.0, 0.004, 0.999, 1.0)}
    assert {p: chance_words(p) for p in (0.0, 0.004, 0.5, 0.97, 0.999, 1.0)} == words


def test_a_margin_is_early_or_late(words):
    assert {s: margin_words(s) for s in (600.0, -90.0, 9000.0)} == words


@pytest.mark.parametrize("outlook", [MET, SAVED, HOPELESS], ids=["met", "met by another plan", "by none"])
def test_an_outlook_names_what_would_meet_the_deadline_or_the_earliest_end(outlook, words):
    assert outlook.words == words


def test_status_and_the_live_head_show_the_outlook():
    for outlook in (MET, SAVED, HOPELESS):
        shown = due(outlook)
        assert dict(summary_facts(shown))["deadline"].endswith(outlook.words)
        assert outlook.words.replace("<", "&lt;") in header_html(shown, Link(0.0))
        assert "deadline" in str(status_view(shown, None))


def test_before_anything_is_known_only_the_time_is_shown(words):
    assert deadline_words(due(None)) == words
    assert "deadline" not in header_html(due(None), Link(0.0))


@pytest.mark.parametrize("took_s", [3000.0, 4200.0])
def test_an_ended_job_tells_whether_it_was_in_time(took_s, words):
    ended = due(None, phase=JobPhase.SUCCEEDED, ended_at_s=b.START_S + took_s)
    assert deadline_words(ended).partition("; ")[2] == words


def test_a_job_without_a_deadline_shows_none():
    assert "deadline" not in dict(summary_facts(b.snapshot()))
    assert "deadline" not in str(plans_view(b.snapshot())).lower()
    head = front.data_table(front.of_front(b.front())).head
    assert "in time" not in head


def test_a_proposal_shows_both_chances_and_the_margin_and_the_front_each_plan(words):
    shown = due()
    facts = next(block for block in plans_view(shown).blocks if isinstance(block, Facts))
    assert dict(facts.rows)["by the deadline"] == words(name="proposal")
    table = front.data_table(front.of_front(shown.front))
    assert table.head[-1] == "in time"
    assert {"50 %", "51 %"} <= {row[-1] for row in table.rows}
    dot = front.of_front(shown.front).front[0]
    assert front.words(dot, "USD per hour") == words(name="plan")


def test_results_as_data_hold_chance_and_margin():
    table = PlansView(due()).tables().tables["front"]
    first = table.rows[0]
    assert (first["in_time"], first["margin_s"]) == (0.5, -90.0)


def test_a_submit_says_whether_the_deadline_can_be_met(words):
    spec = replace(b.snapshot().spec, deadline_s=3600.0)
    assert str(SubmittedView(spec, deadline=HOPELESS)) == words(name="it cannot")
    assert str(SubmittedView(spec, deadline=MET)) == words(name="it can")
    assert str(SubmittedView(spec)) == words(name="not known")
    assert "eadline" not in str(SubmittedView(b.snapshot().spec))
