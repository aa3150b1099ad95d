"""What views show of a total budget: what is spent, what the rest buys, and each plan's cost until the end."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.jobs import builders as b

from dlrover_nb.api.views.job_views import DecisionView, PlansView, StatusView, SubmittedView
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.budget import BudgetOutlook, PlanBudget
from dlrover_nb.core.structs.plan.prices import PriceTable
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.widgets.blocks import Facts
from dlrover_nb.widgets.charts import front
from dlrover_nb.widgets.jobs.plans import plans_view
from dlrover_nb.widgets.jobs.review_card import Link, header_html, undo_words
from dlrover_nb.widgets.jobs.status import budget_words, status_view, summary_facts
from dlrover_nb.widgets.past.html_report import report_html
from dlrover_nb.widgets.rows.job_cells import Rank, cost_cell, line_of, needs

NOW = PlanBudget(b.NOW_PLAN, 2.0, end_cost=1.5, enough=0.96, share=1.0)
ENOUGH = BudgetOutlook("quick-start", 10.0, 4.0, "USD", 2.0, 1000.0, 2_700_000, now=NOW)
SHORT = replace(ENOUGH, spent=8.5, now=replace(NOW, end_cost=4.0, enough=0.01, share=0.375))
SAVED = replace(SHORT, best=PlanBudget(b.BETTER_PLAN, 1.0, 1.2, 0.93, 1.0))


def limited(outlook=ENOUGH, **changes):
    """Return a snapshot of a job with a total budget; its candidates know what they cost until the end."""
    shown = b.snapshot(budget=outlook, **changes)
    candidates = tuple(replace(c, in_budget=0.5, end_cost=2.5) for c in shown.front.candidates)
    opened = shown.proposals[-1]
    better = replace(
        opened,
        candidate=replace(opened.candidate, in_budget=0.97, end_cost=1.25),
        baseline=replace(opened.baseline, in_budget=0.02, end_cost=4.0),
    )
    return replace(
        shown,
        spec=replace(shown.spec, budget_total=10.0),
        front=replace(shown.front, candidates=candidates),
        proposals=(*shown.proposals[:-1], better),
    )


@pytest.mark.parametrize("outlook", [ENOUGH, SHORT, SAVED])
def test_status_and_report_say_what_is_spent_and_what_the_rest_buys(outlook):
    shown = limited(outlook)
    assert dict(summary_facts(shown))["budget"].startswith(outlook.words)
    assert outlook.spent_words in " ".join(str(status_view(shown, None)).split())
    assert outlook.spent_words in report_html(shown)


@pytest.mark.parametrize("outlook", [ENOUGH, SHORT, SAVED], ids=["enough", "short", "saved by another plan"])
def test_the_live_head_has_the_money_and_warns_only_where_the_rest_is_not_enough(outlook, words, lines_of):
    head = header_html(limited(outlook), Link(0.0))
    assert ("Budget: " in head) is (outlook is not ENOUGH)
    parts = lines_of(head).replace(" \u00b7 ", "\n").splitlines()
    assert [part for part in parts if "udget" in part] == words


def test_an_ended_job_tells_what_it_has_spent_and_no_choice(words):
    ended = limited(SHORT, phase=JobPhase.STOPPED, ended_at_s=b.START_S + 900.0)
    assert budget_words(ended) == words
    assert "raises" not in budget_words(ended)


def test_prices_that_are_assumed_are_said_to_be():
    assert budget_words(limited()).endswith("assumed prices")


def test_a_proposal_and_the_front_show_what_plans_cost_until_the_end(words):
    shown = limited()
    facts = next(block for block in plans_view(shown).blocks if isinstance(block, Facts))
    assert dict(facts.rows)["within the budget"] == words(name="proposal")
    table = front.data_table(front.of_front(shown.front))
    assert table.head[-1] == "in budget"
    assert "50 %" in {row[-1] for row in table.rows}
    dot = front.of_front(shown.front).front[0]
    assert front.words(dot, "USD per hour") == words(name="plan")


def test_a_job_without_a_limit_shows_none():
    assert "budget" not in dict(summary_facts(b.snapshot()))
    assert "budget" not in header_html(b.snapshot(), Link(0.0))
    assert "in budget" not in front.data_table(front.of_front(b.front())).head


def test_the_list_of_jobs_names_the_share_and_wants_attention_from_four_fifths_on(words):
    assert [cost_cell(line_of(summarize(limited()))).text] == words
    assert (Rank.LIMIT, "budget") in needs(summarize(limited(SHORT)))
    assert (Rank.LIMIT, "budget") not in needs(summarize(limited()))
    assert (Rank.LIMIT, "budget") not in needs(summarize(b.snapshot()))


def test_results_as_data_hold_the_money():
    row = StatusView(limited(SHORT)).tables().head.rows[0]
    assert (row["spent"], row["budget_total"]) == (8.5, 10.0)
    first = PlansView(limited()).tables().tables["front"].rows[0]
    assert (first["in_budget"], first["end_cost"]) == (0.5, 2.5)


def test_a_decision_about_the_limit_shows_what_holds_now(words):
    decision = Decision(Verdict.BUDGET, "ada", 0.0, budget_total=10.0, id="d9")
    known = limited(decisions=(decision,))
    assert str(DecisionView(decision, known)) == words(name="a limit")
    off = replace(decision, budget_total=None)
    assert str(DecisionView(off, b.snapshot(decisions=(off,)))) == words(name="none")


@pytest.mark.parametrize("limit", [None, 4.5])
def test_an_undo_says_which_limit_it_goes_back_to(limit, words):
    made = Decision(Verdict.BUDGET, "ada", 0.0, budget_total=10.0, id="d9")
    back = Decision(Verdict.BUDGET, "", 0.0, budget_total=limit, undoes="d9")
    assert undo_words(limited(decisions=(made,), undo=back)) == words


def test_a_submit_says_how_long_the_budget_lasts_with_its_first_plan(words):
    prices = PriceTable(cpu_hour=2.0, gib_hour=0.0, assumed=False)
    spec = replace(b.snapshot().spec, prices=prices, budget_total=10.0)
    hours = 10.0 / (2 * spec.plan.total_cpu)
    assert f"{hours:,.1f} h" in str(SubmittedView(spec))
    assert str(SubmittedView(spec)) == words(name="a new job")
    goes_on = replace(spec, start_from=StartFrom("quick-start", rows=True))
    assert str(SubmittedView(goes_on)) == words(name="one that goes on with rows")
    assert "Total budget" not in str(SubmittedView(b.snapshot().spec))
