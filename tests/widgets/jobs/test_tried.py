"""Beside each prediction of a plan that ran stands what it gave; titles agree with what stands below."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import Outcome, ProposalKind, Refusal, Returned
from dlrover_nb.core.structs.decisions.query_answers import Explanation, Marginal, Weighed
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import ProfileSample
from dlrover_nb.core.structs.views.snapshot import MemoryLine
from dlrover_nb.core.why import tried
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.jobs.plans import outcomes_table, plans_view
from dlrover_nb.widgets.jobs.review_card import Link, card_html, memory_clock, review
from dlrover_nb.widgets.jobs.status import memory_blocks
from dlrover_nb.widgets.jobs.whatif import Consequence, consequence_html
from dlrover_nb.widgets.jobs.why import whatif_view, why_view
from dlrover_nb.widgets.oom import running_out

SAID = "698 samples/s"
RAN = Outcome("d1", b.BETTER_PLAN, b.prediction(b.BETTER_PLAN), 698.2, 600.0, 9, b.START_S + 100, 2.1)
NEW = b.snapshot()
OLD = replace(NEW, outcomes=(RAN, *NEW.outcomes))
LARGER = b.plan(3, 1, 0.5, 0.5)


def weighed(plan):
    return Weighed(plan, b.candidate(plan))


def explained(snapshot):
    opened = snapshot.open_proposal
    if opened is not None:
        return Explanation(opened.candidate.plan, opened.id, opened.candidate, opened.baseline, opened.why)
    step = Marginal("1 more worker", weighed(b.BETTER_PLAN), 10.0, 0.1)
    return Explanation(LARGER, None, b.candidate(LARGER), b.candidate(b.NOW_PLAN), "", marginals=(step,))


SHOWN = {
    "headline": lambda s: headline(s).detail,
    "plans": lambda s: plans_view(s).text().split("Predicted and measured")[0],
    "review card": lambda s: card_html(review(s, None, Link(0.0)), s),
    "why": lambda s: why_view(explained(s), s).text(),
    "next steps": lambda s: why_view(explained(replace(s, proposals=())), replace(s, proposals=())).text(),
    "what-if": lambda s: whatif_view([weighed(b.BETTER_PLAN)], s).text(),
    "sliders": lambda s: consequence_html(Consequence(b.BETTER_PLAN, weighed(b.BETTER_PLAN)), s),
    "several": lambda s: whatif_view([weighed(b.BETTER_PLAN), weighed(LARGER)], s).text(),
}


@pytest.mark.parametrize("view", SHOWN)
def test_a_plan_that_ran_is_shown_with_what_it_gave(view):
    assert "698" in SHOWN[view](OLD)
    assert "698" not in SHOWN[view](NEW)
    assert "tried before" not in SHOWN[view](NEW)


def test_the_plan_that_runs_is_shown_with_what_it_gives():
    text = whatif_view([weighed(b.NOW_PLAN)], NEW).text()
    measured = NEW.outcomes[0].measured_samples_per_s
    assert f"{measured:,.0f} samples/s on average of 12 windows" in " ".join(text.split())


def test_the_first_plan_of_a_job_is_known_by_its_windows_and_memory_makes_no_other_plan():
    windows = tuple(ProfileSample(b.START_S, 2.0, LARGER, 512, each) for each in (100.0, 400.0))
    snapshot = replace(NEW, samples=windows)
    more = replace(LARGER, worker=replace(LARGER.worker, memory_mib=4096))
    for plan in (LARGER, more):
        assert tried(snapshot, plan).samples_per_s == pytest.approx(200.0)
        assert tried(snapshot, plan).n_window == 2
    assert tried(snapshot, b.BETTER_PLAN) is None


def test_of_several_runs_the_latest_counts():
    again = replace(RAN, decision="d5", measured_samples_per_s=900.0)
    assert tried(replace(NEW, outcomes=(RAN, again)), b.BETTER_PLAN).samples_per_s == 900.0


def test_a_plan_that_comes_back_says_who_refused_it_and_what_has_changed():
    refusal = Refusal("ada", b.START_S + 120, "rejected", 500.0, 2)
    returned = Returned(refusal, 698.0, 4)
    back = replace(b.proposal("p3"), returned=returned, why=f"It is faster. {returned.words}")
    shown = replace(NEW, proposals=(back,))
    words = (
        "ada rejected this plan before, when we predicted 500 samples/s; since then 2 more plans ran, and we"
    )
    for view in (plans_view(shown).text(10_000), headline(shown).detail):
        assert words in view
    assert "refused before" in plans_view(shown).text()
    assert "refused before" in card_html(review(shown, None, Link(0.0)), shown)


# titles and what stands below


LINES = st.builds(
    MemoryLine,
    role=st.sampled_from(Role),
    limit_mib=st.just(512),
    now_mib=st.floats(1, 512),
    mib_per_hour=st.just(1.0),
    at_end_mib=st.none() | st.floats(1, 1000),
    full_in_s=st.none() | st.floats(0, 1e5),
    oom_probability=st.none() | st.floats(0, 1),
)


@given(lines=st.lists(LINES, min_size=1, max_size=2, unique_by=lambda line: line.role))
def test_no_title_speaks_of_full_memory_where_the_chance_is_next_to_none(lines):
    protects = b.proposal(kind=ProposalKind.PROTECT, target=b.plan(1, 2))
    shown = replace(NEW, memory=tuple(lines), proposals=(protects,))
    at_risk = running_out(shown)
    assert all(line.oom_probability is None or line.oom_probability >= 0.05 for line in at_risk)
    title = headline(shown).text
    assert "0 % chance" not in title.replace("10 % chance", "")
    assert ("run out of memory" in title) == bool(at_risk)
    assert bool(memory_clock(shown, Link(0.0))) == any(line.full_in_s is not None for line in at_risk)
    warned = [block for block in memory_blocks(shown)[1:] if "limit" in getattr(block, "text", "")]
    assert len(warned) == len(at_risk)


def test_more_memory_after_a_kill_says_that_a_node_was_killed(words):
    need = "ps-0 ran out of memory at 512 MiB (its limit is 512)"
    protects = b.proposal(kind=ProposalKind.PROTECT, target=b.plan(1, 2))
    shown = replace(NEW, memory=(), proposals=(protects,), memory_needs=(need,))
    assert headline(shown).text == words


# predicted and measured


def test_a_table_of_outcomes_has_the_prediction_as_it_was_shown_and_says_when(words):
    (plain,) = outcomes_table([RAN]).rows
    assert plain[3] == f"{RAN.predicted.samples_per_s:,.0f}"
    busy = replace(RAN, host_share=0.5)
    table = outcomes_table([busy])
    (row,) = table.rows
    assert row[: len(plain)][:6] == plain[:6]
    assert row[table.head.index("measured, with the host as predicted")] == "1,396"
    assert table.note == words
