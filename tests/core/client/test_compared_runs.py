"""Past runs side by side, and a moment of one from the database alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.cases import for_each
from support.history.history_records import (
    DECISION,
    FIT,
    MITIGATION,
    OUTCOME,
    PLAN,
    PROPOSAL,
    ROW,
    SPEC,
    TARGET,
)

from dlrover_nb.core import pricing
from dlrover_nb.core.client.past.comparison import cost, differences, end_s, n_sample, plan_spans
from dlrover_nb.core.client.past.history_queries import RunHistory
from dlrover_nb.core.client.past.recorded_moment import happenings_of, moment_of
from dlrover_nb.core.history.runs.run_history import JobRun
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.prices import PriceTable

PRICED = replace(SPEC, prices=PriceTable(cpu_hour=1.0, gib_hour=0.0))
RUN = JobRun("clicks@10.000", "clicks", "ada", PRICED, 10.0, JobPhase.SUCCEEDED, 100.0, "done")
APPLIED = replace(PROPOSAL, status=ProposalStatus.APPLIED, closed_at_s=22.0)
HISTORY = RunHistory(RUN, (APPLIED,), (DECISION,), (OUTCOME,), (FIT,), (ROW,))


def test_the_plans_of_a_run_are_those_that_ran_each_once():
    assert [(span.at_s, span.plan) for span in plan_spans(HISTORY)] == [(10.0, PLAN), (22.0, TARGET)]


def test_the_cost_is_each_plan_as_long_as_it_ran():
    hours = (22.0 - 10.0) / 3600, (100.0 - 22.0) / 3600
    prices = [pricing.cost_per_hour(plan, PRICED.prices) for plan in (PLAN, TARGET)]
    assert cost(HISTORY) == pytest.approx(sum(p * h for p, h in zip(prices, hours, strict=True)))
    unknown = replace(RUN, spec=replace(SPEC, prices=PriceTable(cpu_hour=None, gib_hour=1.0)))
    assert cost(replace(HISTORY, run=unknown)) is None


def test_a_run_without_an_end_is_known_up_to_its_last_row():
    open_run = replace(HISTORY, run=replace(RUN, phase=JobPhase.TRAINING))
    assert end_s(open_run) == ROW.at_s
    assert n_sample(HISTORY) == ROW.samples_per_s * ROW.span_s


def test_only_keys_that_differ_are_told_and_no_names():
    other = replace(SPEC, name="views", owner="bob", mode=Mode.AUTO, n_epoch=SPEC.n_epoch + 1)
    assert {each.key: each.values for each in differences([SPEC, other])} == {
        "mode": (str(SPEC.mode), "auto"),
        "n_epoch": (str(SPEC.n_epoch), str(SPEC.n_epoch + 1)),
    }
    assert differences([SPEC, replace(SPEC, name="views")]) == ()


@for_each(
    ("at_s", "status", "n_decision", "n_outcome", "plan"),
    [
        (15.0, None, 0, 0, PLAN),
        (20.0, "pending", 0, 0, PLAN),
        (21.0, "pending", 1, 0, PLAN),
        (22.0, "applied", 1, 0, TARGET),
        (100.0, "applied", 1, 1, TARGET),
    ],
)
def test_a_moment_of_the_database_has_what_was_known_then_and_no_more(
    at_s, status, n_decision, n_outcome, plan
):
    moment = moment_of(HISTORY, at_s)
    assert [p.status for p in moment.proposals] == ([status] if status else [])
    assert (len(moment.decisions), len(moment.outcomes), moment.target) == (n_decision, n_outcome, plan)
    assert moment.fit_kept == (FIT if at_s >= FIT.at_s else None)
    assert moment.phase == (JobPhase.SUCCEEDED if at_s >= 100 else None)
    assert "journal of this run is not on this machine" in moment.missing


def test_what_happened_is_told_in_its_order(words):
    happenings = [each.words for each in happenings_of(HISTORY)]
    assert happenings[0] == "submitted by ada"
    assert happenings[1:4] == words
    assert happenings[-1] == "succeeded: done"


ACCEPTED = Decision(Verdict.ACCEPT, "ada", 30.0, proposal="m1", id="d2")
ORDERED = Decision(Verdict.MITIGATE, "ada", 60.0, action=MITIGATION.action, id="d3")
DONE = replace(MITIGATION, status=ProposalStatus.APPLIED, closed_at_s=40.0, note="by ada", decision="d2")
FAILED = replace(
    DONE, id="m2", created_at_s=60.0, status=ProposalStatus.FAILED, closed_at_s=70.0, decision="d3"
)
ACTED = replace(HISTORY, decisions=(DECISION, ACCEPTED, ORDERED), mitigations=(DONE, FAILED))


@for_each(
    ("at_s", "statuses"),
    [
        (24.0, []),
        (25.0, ["pending"]),
        (30.0, ["applying"]),
        (40.0, ["applied"]),
        (60.0, ["applied", "applying"]),
        (70.0, ["applied", "failed"]),
    ],
)
def test_a_moment_of_the_database_has_the_actions_as_they_were_then(at_s, statuses):
    moment = moment_of(ACTED, at_s)
    assert [m.status for m in moment.mitigations] == statuses
    assert (moment.open_mitigation is not None) == (statuses[-1:] == ["pending"])


def test_an_action_is_told_as_proposed_unless_a_user_ordered_it_directly(words):
    told = [each.words for each in happenings_of(ACTED) if "proposed" in each.words]
    assert told == [words, "m1 proposed: restart worker-0"]
