"""The views of answers, logs, scores and single records: text and HTML say the same, and hostile text stays text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.cases import for_each
from support.jobs import builders as b
from support.jobs.replies import LINE, explanation

from dlrover_nb.core.history.runs.prediction_scores import scoreboard
from dlrover_nb.core.structs.cluster.host_wish import HostWish
from dlrover_nb.core.structs.decisions.candidates import TermShare
from dlrover_nb.core.structs.decisions.decisions import Outcome
from dlrover_nb.core.structs.decisions.query_answers import LogLine, Marginal, Weighed
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.start_from import BeganFrom
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.fit import Coefficient
from dlrover_nb.core.structs.views.snapshot import ROOM, NodePhase, NodeView
from dlrover_nb.core.why import Question, answers
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.magics.verbs.command_verbs import sizes_of
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, View
from dlrover_nb.widgets.charts import breakdown
from dlrover_nb.widgets.jobs.logs import logs_view
from dlrover_nb.widgets.jobs.status import nodes_blocks, rate_words, status_view
from dlrover_nb.widgets.jobs.why import parts_blocks, scale_command, whatif_view, why_view
from dlrover_nb.widgets.past import records
from dlrover_nb.widgets.past.scores import scores_view

INSUFFICIENT = "0/2 nodes are available: 2 Insufficient cpu."


def outcome(name: str, measured: float, predicted: float | None) -> Outcome:
    forecast = None
    if predicted is not None:
        forecast = replace(
            b.prediction(b.NOW_PLAN), samples_per_s=predicted, low=0.9 * predicted, high=1.1 * predicted
        )
    return Outcome(name, b.NOW_PLAN, forecast, measured, 9000.0, 12, b.START_S + 150, 2.1)


VIEWS = {
    "why": why_view(explanation(), b.snapshot()),
    "why now": why_view(explanation(plan=b.NOW_PLAN, proposal=None, candidate=None, baseline=None), b.snapshot()),
    "whatif": whatif_view((Weighed(b.BETTER_PLAN, b.candidate(b.BETTER_PLAN)),), b.snapshot()),
    "whatif unknown": whatif_view((Weighed(b.BETTER_PLAN, None, "no room"),), b.snapshot(front=None)),
    "whatif two": whatif_view(
        (Weighed(b.BETTER_PLAN, b.candidate(b.BETTER_PLAN)), Weighed(b.plan(9), None, "8 is the most")), b.snapshot()
    ),
    "logs": logs_view("quick-start", (LINE,)),
    "no logs": logs_view("quick-start", ()),
    "plan": records.plan_view(b.NOW_PLAN),
    "candidate": records.candidate_view(b.candidate(b.BETTER_PLAN)),
    "front": records.front_view(b.front()),
    "curve": records.curve_view(b.snapshot().curves[0]),
    "forecast": records.forecast_view(b.snapshot().memory[1]),
    "forecast unknown": records.forecast_view(replace(b.snapshot().memory[1], fan=())),
    "decision": records.decision_view(b.snapshot().decisions[0]),
    "outcome": records.outcome_view(b.snapshot().outcomes[0]),
    "fit": records.fit_view(b.snapshot().fit),
    "proposal": records.proposal_view(b.proposal()),
    "snapshot": records.snapshot_view(b.snapshot()),
}  # fmt: skip


@for_each("name", VIEWS)
def test_a_view_is_static_and_says_in_html_every_number_of_its_text(name):
    view = VIEWS[name]
    html = view.html()
    assert "<script" not in html
    assert "None" not in view.text()
    assert "nan" not in re.findall(r"[a-z]+", view.text())
    seen = re.sub(r"<[^>]*>", " ", html)
    numbers = re.findall(r"\d[\d.,]*", view.text())
    assert not [n for n in numbers if n not in seen]


def test_why_says_what_binds_what_a_step_brings_and_what_would_change_it():
    text = " ".join(VIEWS["why"].text().split())
    assert "lies at workers: 2, the bound of the job" in text
    assert "+12,345" in text
    assert "no: a job needs at least 1 PS" in text
    assert "8 What would change it? If the x were above 2 cores (now 1 cores), we would change" in text
    assert "6 Why not another plan? The next best is 3w x 0.5 + 2p x 0.25: " in text
    assert "Next best experiment, 2w x 0.5 + 2p x 0.25: Experiment: trying it removes about 40 % of" in text
    assert "7 30,000" not in text
    assert "30,000 7" in text


def test_why_begins_with_the_nine_answers_in_their_order():
    text = why_view(explanation(), b.snapshot()).text()
    numbers = [line.strip()[0] for line in text.splitlines() if re.match(r" *[1-9] [A-Z].*\?", line)]
    assert numbers == [*"123456789"]
    assert text.index("9 What happened before?") < text.index("What one more change would bring")


@for_each("question", list(Question))
def test_one_question_is_answered_alone_in_the_same_words(question):
    asked, (answer,) = explanation(), answers(explanation(), b.snapshot(), question)
    view = why_view(asked, b.snapshot(), question)
    assert [block.text for block in view.blocks] == [f"{question.asks} {answer.words}"]


def test_why_without_measurements_does_not_say_that_nothing_binds():
    bare = explanation(plan=b.NOW_PLAN, proposal=None, candidate=None, baseline=None, binding=())
    assert "no limit:" not in why_view(bare, b.snapshot()).text()
    assert "no limit:" in why_view(explanation(binding=()), b.snapshot()).text()


@for_each("phase", [JobPhase.TRAINING, JobPhase.SUCCEEDED])
def test_why_there_is_no_answer_is_said_once_for_all_such_questions(phase):
    snapshot = replace(b.snapshot(), phase=phase)
    asked = explanation(plan=b.NOW_PLAN, proposal=None, candidate=None, baseline=None)
    facts = next(block for block in why_view(asked, snapshot).blocks if isinstance(block, Facts))
    names, texts = zip(*facts.rows, strict=True)
    assert len(set(texts)) == len(texts)
    unknown = [str(a.question.number) for a in answers(asked, snapshot) if not a.is_known]
    assert len(unknown) > 1
    assert re.findall(r"\d", names[-1]) == unknown


def test_what_limits_the_running_plan_is_in_the_answer_to_why():
    words = "The network of a PS is the bottleneck"
    assert words not in why_view(explanation(), b.snapshot()).text()
    assert words in why_view(explanation(bottleneck=words), b.snapshot()).text()


def test_what_if_gives_the_command_only_for_what_would_not_be_refused(words):
    assert "%dlrover apply quick-start --workers 2" in VIEWS["whatif"].text()
    refused = VIEWS["whatif unknown"].text()
    assert refused.splitlines()[2] == words
    assert "%dlrover apply" not in refused


def test_of_an_ended_job_what_if_tells_only_what_would_have_been(words):
    over = b.snapshot(phase=JobPhase.SUCCEEDED)
    asked = Weighed(b.BETTER_PLAN, b.candidate(b.BETTER_PLAN), "it has succeeded")
    text = whatif_view((asked,), over).text()
    assert "had run on" in text.splitlines()[0]
    assert text.splitlines()[2] == words
    assert "it has succeeded" not in text
    assert "finish in" not in text
    assert "%dlrover apply" not in text


def test_what_if_of_the_plan_that_runs_compares_it_with_nothing():
    asked = Weighed(b.NOW_PLAN, b.candidate(b.NOW_PLAN), "plan must differ from now")
    text = whatif_view((asked,), b.snapshot(target=b.NOW_PLAN)).text()
    assert "The job runs on this plan" in text
    assert "must differ" not in text
    assert "(+0.0 %)" not in text
    assert "same" not in text


@pytest.mark.parametrize("ended", [False, True])
def test_a_refusal_of_every_step_is_said_once_and_of_an_ended_job_not_at_all(ended):
    step = Weighed(b.BETTER_PLAN, b.candidate(b.BETTER_PLAN), "no room")
    why = explanation(
        marginals=(Marginal("1 more worker", step, 5.0, 0.1), Marginal("2 more", step, 9.0, 0.2))
    )
    text = why_view(why, b.snapshot(**({"phase": JobPhase.STOPPED} if ended else {}))).text()
    assert text.count("no room") == (0 if ended else 1)
    assert "no: " not in text


def test_two_plans_refused_for_one_reason_have_it_said_once_above(words):
    text = whatif_view(
        (Weighed(b.BETTER_PLAN, None, "no room"), Weighed(b.plan(9), None, "no room")), b.snapshot()
    ).text()
    assert text.splitlines()[2] == words
    assert text.count("no room") == 1


def test_parts_of_an_iteration_are_told_apart_only_where_the_fit_does(words):
    shares = (
        TermShare("gradients", 0.008, 0.5),
        TermShare("updates", 0.004, 0.25),
        TermShare("sync", 0.004, 0.25),
    )
    asked = replace(b.candidate(b.BETTER_PLAN), breakdown=shares)

    def told(*known: str) -> list[object]:
        terms = tuple(Coefficient(s.term, 1.0, 0.1, s.term in known) for s in shares)
        return [*parts_blocks(asked, replace(b.snapshot().fit, coefficients=terms))]

    (nothing,), (one,), (all_of_them,) = told(), told("gradients"), told("gradients", "updates", "sync")
    assert nothing.text == words
    assert one.rows == (("gradients", "8 ms", "50 %"), ("updates and sync", "8 ms", "50 %"))
    assert one.note == words
    assert [name for name, *_ in all_of_them.rows] == ["gradients", "updates", "sync"]
    assert not all_of_them.note


def test_what_the_plan_does_not_explain_is_a_part_of_its_own(words):
    shares = (
        TermShare("gradients", 0.008, 0.5),
        TermShare("rest", 0.004, 0.25),
        TermShare("host", 0.004, 0.25),
    )
    fit = replace(b.snapshot().fit, coefficients=(Coefficient("gradients", 1.0, 0.1, identified=True),))
    (shown,) = parts_blocks(replace(b.candidate(b.BETTER_PLAN), breakdown=shares), fit)
    assert [row[0] for row in shown.rows] == [
        "gradients",
        words,
        words,
    ]
    none = (shares[0], TermShare("rest", 0.0, 0.0))
    (shown,) = parts_blocks(replace(b.candidate(b.BETTER_PLAN), breakdown=none), fit)
    assert [row[0] for row in shown.rows] == ["gradients"]


def test_the_command_that_what_if_gives_asks_for_exactly_that_plan():
    call = GRAMMAR.parse(scale_command("quick-start", b.BETTER_PLAN).split()[1:])
    assert sizes_of(call.values).applied(b.plan(7, 5, 3.0, 2.0)) == b.BETTER_PLAN


def test_what_if_lists_the_named_plans_alone():
    unnamed = [
        c.plan.short
        for i, c in enumerate(b.front().candidates)
        if i not in {p.index for p in b.front().picks}
    ]
    text = VIEWS["whatif"].text()
    assert not any(f"front  {short}" in text for short in unnamed)
    assert "fastest" in text
    assert "The other plans of the front are left out." in text


def test_what_if_draws_the_plan_asked_about_on_the_front():
    assert "asked about" in VIEWS["whatif"].html()
    assert "asked about" in VIEWS["whatif"].text()


def test_a_plan_asked_about_that_dwarfs_all_others_is_not_drawn_over_them():
    huge = b.plan(400, 1)
    view = whatif_view((Weighed(huge, b.candidate(huge), "no room"),), b.snapshot())
    assert "<svg" not in view.html()
    assert "no room" in view.text()


def test_logs_keep_their_order_and_lose_what_steers_a_terminal():
    evil = LogLine(b.START_S + 4, "worker-1", "stdout", "\x1b[2Jgone\x1b]0;title\x07 <b>bold</b>\r\x00")
    view = logs_view("quick-start", (LINE, evil))
    assert "\x1b" not in view.text()
    assert "\x00" not in view.html()
    assert "<b>" not in view.html()
    assert view.text().index("reads shard 3") < view.text().index("gone <b>bold</b>")


def test_scoreboard_counts_hits_per_job_and_over_all():
    board = scoreboard(
        {"a": [outcome("d1", 100.0, 104.0), outcome("d2", 100.0, 150.0)], "b": [outcome("d1", 100.0, None)]}
    )
    text = " ".join(scores_view(board).text().split())
    assert "1 of 2 measurements lay in the predicted 90 % band" in text
    assert "a 2 2 50 % 27.0 % +27.0 %" in text
    assert "b 1 0 - - -" in text
    assert "all 3 2 50 %" in text


def test_a_scoreboard_without_outcomes_says_so():
    assert "No applied plan was measured yet" in scores_view(scoreboard({})).text()


def test_nodes_that_wait_stand_as_such_and_each_reason_below_with_its_nodes():
    waits = [("worker-8", INSUFFICIENT), ("worker-9", INSUFFICIENT), ("ps-9", ROOM)]
    waiting = tuple(
        NodeView(name, Role(name[:-2]), NodePhase.PENDING, 1.0, 512, False, b.START_S, waits_for=why)
        for name, why in waits
    )
    snapshot = b.snapshot()
    table, *told = nodes_blocks(replace(snapshot, nodes=(*snapshot.nodes, *waiting)))
    assert isinstance(table, Table)
    assert [row[1] for row in table.rows].count("waiting") == 3
    assert [block.text for block in told if isinstance(block, Paragraph)] == [
        f"Waiting: {INSUFFICIENT} (worker-8, worker-9)",
        "Waiting for room: ps-9",
    ]


def test_hosts_are_shown_in_status_and_why_where_nodes_were_wished_on_one(words):
    nodes = list(b.snapshot().nodes)
    nodes[0] = replace(nodes[0], wish=HostWish("node2", "load 20 % with it against 80 %", "node3"))
    snapshot = b.snapshot(nodes=tuple(nodes))
    for view in (status_view(snapshot, None), why_view(explanation(), snapshot)):
        (table,) = (block for block in view.blocks if isinstance(block, Table) and block.title == "Hosts")
        assert table.rows == ((nodes[0].id, "node2", "node3", words),)
    without = why_view(explanation(), b.snapshot())
    assert not any(isinstance(block, Table) and block.title == "Hosts" for block in without.blocks)


def test_what_a_job_began_from_is_shown_and_its_rows_are_not_counted_as_speed():
    began = BeganFrom("checkpoint 4 of daily-1", 100.0, n_sample=6_000)
    train = replace(b.snapshot().train, n_sample_done=10_000)
    now = b.snapshot(began_from=began, train=train)
    shown = "checkpoint 4 of daily-1, with its account of 6,000 samples"
    assert shown in " ".join(status_view(now, None).text().split())
    assert f"The job began from {shown}." in " ".join(why_view(explanation(), now).text().split())
    end = replace(now, phase=JobPhase.SUCCEEDED, started_at_s=0.0, ended_at_s=4.0, at_s=4.0)
    assert rate_words(end) == "1,000 samples/s on average"
    assert rate_words(replace(end, began_from=None)) == "2,500 samples/s on average"


def test_nodes_of_other_roles_are_shown_with_the_others_and_not_in_what_is_measured():
    told = b.snapshot()
    shown = b.snapshot(nodes=(*told.nodes, b.node("evaluator-0", Role("evaluator"), memory=300.0)))
    (table, *_) = (each for each in nodes_blocks(shown) if isinstance(each, Table))
    assert [row[0] for row in table.rows] == [node.id for node in shown.nodes]
    assert breakdown.columns(shown, None) == breakdown.columns(told, None)


@pytest.mark.parametrize("n_row", [3, 400])
def test_plain_text_shows_the_rows_of_a_table_that_are_brief_and_a_page_all(n_row):
    rows = tuple((f"plan-{i}", str(i)) for i in range(n_row))
    view = View("Plans", (Table("Front", ("plan", "speed"), rows, "Cheapest first.", brief=(0, 2)),))
    text, page = view.text(), view.html()
    assert [i for i in range(n_row) if f"plan-{i} " in text] == [0, 2]
    assert f"Cheapest first. {n_row - 2} more rows: see --json or to_frame()." in text
    assert all(f"plan-{i}<" in page for i in range(n_row))
