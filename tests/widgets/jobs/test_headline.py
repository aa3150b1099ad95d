"""The sentence of a job: what each state says, and that each number in it is one of the snapshot's."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.jobs import builders as b

from dlrover_nb.core.structs.cluster.host_load import HostLoad
from dlrover_nb.core.structs.decisions.candidates import Prediction
from dlrover_nb.core.structs.decisions.decisions import Decision, Outcome, ProposalKind, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.training.shards import Purpose, QuarantinedShard
from dlrover_nb.core.structs.views.snapshot import Evaluation
from dlrover_nb.widgets import moves
from dlrover_nb.widgets.jobs.headline import STATES, headline
from dlrover_nb.widgets.jobs.status import status_view
from dlrover_nb.widgets.past.html_report import report_html

NOW = b.snapshot()
QUIET = replace(NOW, proposals=(), outcomes=(), memory=())
MORE_MEMORY = replace(b.NOW_PLAN, ps=replace(b.NOW_PLAN.ps, memory_mib=1024))
PROTECTS = b.proposal(kind=ProposalKind.PROTECT, target=MORE_MEMORY)
BAD_ROWS = QuarantinedShard(Purpose.TRAIN, 7, 1, 37_800, 43_200, 1_204, ("worker-0", "worker-1", "worker-2"))
CHANGE = Decision(Verdict.ACCEPT, "ada", NOW.at_s - 4.0, "p2", b.BETTER_PLAN, id="d2")


def outcome(measured, predicted=Prediction(30_000, 27_000, 33_000, False), host_share=0.0):  # noqa: B008
    return Outcome("d1", QUIET.target, predicted, measured, 20_000.0, 9, 100.0, 0.4, host_share)


SITUATIONS = {
    "proposal": NOW,
    "proposal of a trial": replace(
        NOW, proposals=(b.proposal(kind=ProposalKind.EXPLORE, target=b.plan(4, 1)),)
    ),
    "memory": replace(NOW, proposals=(PROTECTS,)),
    "action": replace(QUIET, mitigations=(b.mitigation(),)),
    "rows": replace(NOW, quarantined=(BAD_ROWS, BAD_ROWS)),
    "change": replace(QUIET, target=b.BETTER_PLAN, decisions=(CHANGE,), under_way="d2"),
    "host": replace(QUIET, host=HostLoad(0.4, 0.5, 1.25, 3.0)),
    "as predicted": replace(QUIET, outcomes=(outcome(29_200.0),)),
    "as predicted beside other work": replace(QUIET, outcomes=(outcome(21_000.0, host_share=0.31),)),
    "missed": replace(QUIET, outcomes=(outcome(22_000.0),)),
    "faster than predicted": replace(QUIET, outcomes=(outcome(38_000.0),)),
    "nothing": QUIET,
    "manual": replace(QUIET, mode=Mode.MANUAL),
    "no fit": replace(QUIET, fit=None, front=None, curves=()),
    "starting": replace(QUIET, samples_per_s=0.0, train=replace(QUIET.train, n_sample_done=0)),
    "evaluating": replace(QUIET, phase=JobPhase.EVALUATING),
    "done": replace(QUIET, phase=JobPhase.SUCCEEDED, evaluation=Evaluation(0.7812, 0.41, 5_400)),
    "stopped": replace(QUIET, phase=JobPhase.STOPPED),
    "failed": replace(NOW, phase=JobPhase.FAILED, message="no space left in the checkpoint folder"),
}


def test_each_situation_has_its_sentence(snapshot):
    leads = {name: headline(situation) for name, situation in SITUATIONS.items()}
    assert snapshot == "\n\n".join(f"{name}: {lead.text}\n  {lead.detail}" for name, lead in leads.items())


def test_each_state_speaks_in_some_situation_and_the_last_in_any():
    spoken = {
        next(state for state in STATES if state(situation) is not None) for situation in SITUATIONS.values()
    }
    assert spoken == set(STATES)
    assert all(STATES[-1](situation) is not None for situation in SITUATIONS.values())


@pytest.mark.parametrize("name", SITUATIONS)
def test_every_view_begins_with_it(name):
    situation = SITUATIONS[name]
    lead = headline(situation)
    assert status_view(situation, b.series()).blocks[0] == lead
    assert status_view(situation, None).text(1000).splitlines()[2] == lead.text
    page = report_html(situation, b.series())
    assert page.index("font-size:17px") < page.index("<table")


def test_names_of_others_are_escaped_in_it():
    hostile = replace(NOW, phase=JobPhase.FAILED, message=b.HOSTILE)
    assert b.HOSTILE in headline(hostile).text
    assert "<script" not in status_view(hostile, None).html()


@pytest.mark.parametrize("kind", ProposalKind)
def test_where_a_price_is_named_assumed_prices_are_said_to_be(kind):
    proposal = b.proposal(kind=kind)
    for pause_s in (0.0, 2.4):
        changed = replace(proposal, candidate=replace(proposal.candidate, transition_s=pause_s))
        lead = headline(replace(NOW, proposals=(changed,)))
        assert "cents an hour more" in lead.text + lead.detail
        assert lead.detail.endswith("Prices are assumed.")


# a change of plan in words


PLANS = st.builds(
    ResourcePlan,
    worker=st.builds(RolePlan, st.integers(1, 12), st.sampled_from([0.5, 1.0]), st.sampled_from([512, 1024])),
    ps=st.builds(RolePlan, st.integers(1, 3), st.sampled_from([0.25, 0.5]), st.just(512)),
)


@given(PLANS, PLANS)
def test_a_change_is_said_both_ways_and_back_with_the_opposite_words(before, after):
    there, back = moves.move(before, after), moves.move(after, before)
    assert bool(there.parts) == (before != after)
    more, fewer = after.worker.count > before.worker.count, after.worker.count < before.worker.count
    n = moves.counted(abs(after.worker.count - before.worker.count), after_role())
    assert (f"add {n}" in there.order) == more == (f"take {n}" in back.order)
    assert (f"adding {n}" in there.doing) == more
    assert (f"take {n}" in there.order) == fewer


def after_role():
    return next(iter(moves.NAMES))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.5, "about 0.5 times as fast"), (0.98, "as fast as now"), (1.02, "as fast as now"),
        (1.46, "about 1.5 times as fast"), (2.04, "about twice as fast"), (12.4, "about 12 times as fast"),
    ],
)  # fmt: skip
def test_a_speed_is_a_factor_with_two_digits(value, words):
    assert moves.times(value) == words


@pytest.mark.parametrize(
    ("amount", "currency", "words"),
    [
        (0.0301, "USD", "3 cents"), (0.01, "USD", "1 cent"), (0.004, "EUR", "0.4 cents"), (0.123, "USD", "12 cents"),
        (1.24, "USD", "1.2 USD"), (1234.5, "USD", "1,234 USD"), (0.03, "credits", "0.03 credits"),
    ],
)  # fmt: skip
def test_money_is_said_as_people_say_it(amount, currency, words):
    assert moves.money(amount, currency) == words
