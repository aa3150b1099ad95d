"""Forms become commands: which fields make which command, and what a wrong field says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.commands.requests import SIZES
from dlrover_nb.core.errors import DlroverError, InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import BackupWorkers, KillRestart, MoveBuckets
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.dashboard.forms.act import (
    FORM_ACTIONS,
    MOST_REASON,
    answered_words,
    back_to,
    key_of,
    request_of,
)

BASE = {"cluster": "a", "job": "ads", "reason": " it is slow ", "key": "k1", "version": "d3"}


def command_of(form, *, now=None):
    return request_of(form).command(form["job"], now, version=form.get("version", ""), key=key_of(form))


def planm(plan: ResourcePlan) -> dict[str, str]:
    sizes = (
        plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu, plan.worker.memory_mib, plan.ps.memory_mib,
    )  # fmt: skip
    return dict(zip(SIZES, map(str, sizes), strict=True))


plans = st.builds(
    ResourcePlan,
    *[st.builds(RolePlan, st.integers(1, 500), st.floats(0.01, 99), st.integers(64, 99_999))] * 2,
)


@given(plans)
def test_the_plan_that_a_form_holds_is_the_plan_that_is_asked_for(plan):
    made = command_of(BASE | planm(plan) | {"action": "override", "proposal": "p2"})
    assert made.decision is not None
    assert made.decision.plan == plan
    assert (made.action, made.subject, made.why) == (Action.OVERRIDE, "p2", "it is slow")
    assert command_of(BASE | planm(plan) | {"action": "scale"}).decision.plan == plan


@pytest.mark.parametrize("verdict", ["accept", "reject"])
def test_an_answer_names_the_proposal_and_the_version_that_were_seen(verdict):
    made = command_of(BASE | {"action": verdict, "proposal": "p2"})
    assert made.decision == Decision(Verdict(verdict), "", 0.0, "p2", why="it is slow", seen="d3")
    assert made.job == "ads"


def test_a_key_is_of_a_form_with_all_that_it_asks_for():
    form = BASE | {"action": "accept", "proposal": "p2"}
    key = command_of(form).key
    assert 0 < len(key) <= 64
    assert command_of(form | {"csrf": "x", "reason": "another", "back": "jobs"}).key == key
    others = ({"key": "k2"}, {"action": "reject"}, {"proposal": "p3"}, {"job": "b"}, {"version": "d4"})
    assert key not in {command_of(form | other).key for other in others}
    assert command_of(form | {"key": ""}).key == ""


def test_who_asks_is_never_taken_from_a_form():
    for field in ("by", "person", "at_s", "id"):
        with pytest.raises(InvalidValueError, match=f"got '{field}'; load the page again"):
            command_of(BASE | {"action": "accept", "proposal": "p2", field: "root"})
    assert command_of(BASE | {"action": "accept", "proposal": "p2"}).decision.by == ""


def test_a_mode_a_shard_an_end_and_a_stop_become_their_commands():
    assert command_of(BASE | {"action": "mode", "mode": "auto"}).decision.mode is Mode.AUTO
    assert command_of(BASE | {"action": "budget", "budget_total": "40.5"}).decision.budget_total == 40.5
    assert command_of(BASE | {"action": "budget", "budget_total": ""}).decision.budget_total is None
    assert command_of(BASE | {"action": "retry shard", "shard": "7"}).shard.shard == 7
    assert command_of(BASE | {"action": "skip shard", "shard": "7"}).action is Action.SKIP_SHARD
    assert command_of(BASE | {"action": "finish"}).finish.why == "it is slow"
    assert command_of(BASE | {"action": "stop"}).action is Action.STOP


def test_an_undo_is_of_the_decision_that_was_seen_and_not_of_a_later_one():
    back = Decision(Verdict.SCALE, "", 0.0, plan=b.NOW_PLAN, undoes="d9")
    made = command_of(BASE | {"action": "undo", "decision": "d3"}, now=b.snapshot(undo=back))
    assert (made.action, made.decision.undoes, made.decision.plan) == (Action.UNDO, "d3", b.NOW_PLAN)
    with pytest.raises(StaleDecisionError, match="d3"):
        command_of(BASE | {"action": "undo", "decision": "d3"}, now=b.snapshot())


def test_a_form_that_cancels_a_change_takes_back_none_that_is_in_place(error_words):
    back = Decision(Verdict.SCALE, "", 0.0, plan=b.NOW_PLAN, undoes="d3")
    form = BASE | {"action": "undo", "decision": "d3", "cancels": "yes"}
    made = command_of(form, now=b.snapshot(undo=back, under_way="d3"))
    assert made.decision.undoes == "d3"
    with error_words(StaleDecisionError):
        command_of(form, now=b.snapshot(undo=back))


@pytest.mark.parametrize(
    ("field", "action"),
    [
        ({"restart": "worker-0"}, KillRestart("worker-0", Role.WORKER)),
        ({"move": "ps-0"}, MoveBuckets("ps-0")),
        ({"backup": "0"}, BackupWorkers(0)),
    ],
)
def test_an_action_against_a_straggler_is_ordered_for_a_node_that_the_job_has(field, action):
    made = command_of(BASE | {"action": "mitigate"} | field, now=b.snapshot())
    assert (made.action, made.decision.action.action) == (Action.MITIGATE, action)
    assert (made.decision.seen, made.why) == ("d3", "it is slow")


@for_each(
    ("fields", "said"),
    [
        ({}, "got none; give exactly one"),
        ({"restart": "worker-0", "backup": "1"}, "got restart and backup"),
        ({"restart": "worker-7"}, "there are: worker-0, ps-0"),
        ({"backup": "some"}, "backup must be a whole number"),
    ],
)
def test_an_action_that_the_job_cannot_have_is_refused_with_what_it_has(fields, said):
    with pytest.raises(InvalidValueError, match=said):
        command_of(BASE | {"action": "mitigate"} | fields, now=b.snapshot())


@for_each(
    ("wrong", "said"),
    [
        ({"action": "delete"}, "action must be one of"),
        ({"action": ""}, "action must be one of"),
        ({"action": "accept"}, "proposal must be given"),
        ({"action": "scale", "workers": "many"}, "workers must be a whole number, got 'many'"),
        ({"action": "scale", "workers": "1", "ps": "1", "worker_cpu": "fast"}, "worker_cpu must be a number"),
        ({"action": "mode", "mode": "wild"}, "mode must be one of manual, suggest, auto"),
        ({"action": "budget", "budget_total": "lots"}, "budget_total must be a number, got 'lots'"),
        ({"action": "stop", "job": " "}, "job must be given"),
        ({"action": "stop", "key": "k" * 65}, "key must have at most 64 letters"),
        ({"action": "stop", "reason": "x" * (MOST_REASON + 1)}, "reason must have at most"),
    ],
)
def test_a_wrong_field_is_named_with_what_was_expected_and_got(wrong, said):
    with pytest.raises(InvalidValueError, match=said):
        command_of(BASE | wrong)


@given(st.dictionaries(st.sampled_from(["action", "job", "proposal", "mode", "shard", "key", *SIZES]),
                       st.one_of(st.text(st.characters(max_codepoint=0x2ff), max_size=70), st.sampled_from([str(a) for a in FORM_ACTIONS]))))  # fmt: skip
def test_no_form_whatever_it_holds_does_anything_but_become_a_command_or_a_refusal(form):
    try:
        made = command_of(form)
    except DlroverError:
        return
    assert made.action in FORM_ACTIONS
    assert made.job


@given(st.text(st.characters(max_codepoint=0x2FF)))
def test_no_form_leads_to_another_host(back):
    address = back_to({"back": back, "cluster": "a", "job": "//evil.example"}, "t")
    page, _, rest = address.partition("?")
    assert page.isalpha()
    assert page.islower()
    assert "/" not in rest


def test_the_second_who_answers_is_told_who_did_what_and_why():
    first = Decision(Verdict.ACCEPT, "ada", b.START_S, "p2", why="it is fast", id="d2")
    other = Decision(Verdict.REJECT, "eve", b.START_S, "p1", id="d1")
    words = answered_words((other, first), "p2")
    assert "ada answered p2" in words
    assert "d2, accept p2 (it is fast)" in words
    assert "eve" not in words
    assert answered_words((other,), "p2") == ""
