"""Actions against stragglers in views: their words, their table, their commands, and the progress of a decision."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console
from support.cases import for_each
from support.jobs import builders as b
from support.jobs.masters import Master

from dlrover_nb import api
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.commands.node_actions import WORDS, Mitigate
from dlrover_nb.core.structs.decisions.actions import (
    AdjustBatches,
    AdjustRates,
    BackupWorkers,
    KillRestart,
    MoveBuckets,
    SetSize,
)
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.stragglers import Pace
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.magics.arguments import GRAMMAR
from dlrover_nb.terminal import render
from dlrover_nb.widgets.jobs.plans import decision_view, plans_view
from dlrover_nb.widgets.jobs.status import jobs_view, status_view
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.mitigations import (
    gain_words,
    mitigations_view,
    order_command,
    slow_words,
    status_words,
    worst,
)
from dlrover_nb.widgets.past.html_report import report_html

OPEN = b.snapshot(mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
RESTART = KillRestart("worker-1", Role.WORKER)


def test_a_gain_is_a_share_of_the_speed(words):
    gains = (0.12, -0.03, 0.001, None, float("nan"))
    assert {str(gain): gain_words(gain) for gain in gains} == words


def test_who_is_slow_is_told_with_the_times_since_when_and_by_which_rule(words):
    slow = b.straggler(), b.straggler("ps-0", Role.PS)
    assert [slow_words(each, "quick-start") for each in slow] == words


def test_a_node_that_is_slow_over_both_windows_is_told_once():
    short = replace(b.straggler(pace=Pace.TRANSIENT), window_s=60.0)
    assert worst((short, b.straggler())) == worst((b.straggler(), short)) == (b.straggler(),)


def test_an_open_action_is_shown_with_its_numbers_and_the_commands_that_answer_it(words):
    assert mitigations_view(OPEN).text() == words


@pytest.mark.parametrize("view", [status_view(OPEN, None), plans_view(OPEN)], ids=["status", "plans"])
def test_other_views_have_an_open_action_with_its_numbers_and_commands_too(view):
    for text in (view.text(), view.html()):
        assert "24.0 ms" in text
        assert gain_words(0.12) in text
        assert "%dlrover apply quick-start m1" in text
        assert "%dlrover reject quick-start m1" in text


def test_the_table_names_status_decider_and_decision(words):
    done = b.mitigation("m1", status=ProposalStatus.APPLIED, decision="d2")
    no = b.mitigation("m2", BackupWorkers(1), status=ProposalStatus.REJECTED, gain=None)
    said = (
        Decision(Verdict.ACCEPT, "ada", b.START_S + 290, "m1", id="d2"),
        Decision(Verdict.REJECT, "bob", b.START_S + 291, "m2", id="d3"),
    )
    assert mitigations_view(b.snapshot(mitigations=(done, no), decisions=said)).text() == words


def test_without_any_action_the_view_says_how_to_order_one(words):
    assert mitigations_view(b.snapshot()).text() == words


def test_nothing_waits_and_nobody_is_slow_in_a_job_that_has_ended():
    over = replace(OPEN, phase=JobPhase.SUCCEEDED)
    for view in (mitigations_view(over), status_view(over, None)):
        assert "accept quick-start m1" not in view.text()
        assert "is slow" not in view.text()


@for_each(
    "action",
    [
        RESTART,
        MoveBuckets("ps-0"),
        AdjustBatches((("worker-0", 96), ("worker-1", 32))),
        AdjustBatches((("worker-0", 48), ("worker-1", 32)), (("worker-0", 2),)),
        BackupWorkers(2),
        AdjustRates((("worker-0", 1.0), ("worker-1", 0.25))),
        SetSize("ps-0", Role.PS, 2.0, 4096),
    ],
)
def test_the_command_of_an_action_orders_just_that(action):
    nodes = tuple(
        b.node(name, Role.PS if name.startswith("ps") else Role.WORKER, memory=1.0)
        for name in ("worker-0", "worker-1", "ps-0")
    )
    call = GRAMMAR.parse_line(order_command("quick-start", action).removeprefix("%dlrover "))
    assert call.verb.handler is GRAMMAR.verbs["mitigate"].handler
    request = Mitigate(**{word: call.values[word] for word in WORDS})
    assert request.chosen(b.snapshot(nodes=nodes)) == action


def test_an_action_is_in_effect_only_once_that_is_known(words):
    said = {
        f"{status} {note}".rstrip(): status_words(replace(b.mitigation(status=status), note=note))
        for status in ProposalStatus
        for note in ("", "no room")
    }
    assert [status for status, told in said.items() if told == said["applied"]] == ["applied"]
    assert said == words


def job(snapshot):
    return api.Job(JobHandle("quick-start", Master(snapshot), user="ada"), Poller())


def test_the_result_of_an_answer_tells_the_action_and_how_far_it_is(words):
    shown = job(b.snapshot(proposals=(), mitigations=(b.mitigation(),))).accept(why="so be it")
    assert str(shown) == words
    assert shown.tables().json()


def test_the_result_of_an_order_tells_the_action(words):
    assert str(job(b.snapshot()).mitigate(backup=1, why="it is slow")) == words


def test_a_decision_that_no_report_tells_of_yet_promises_nothing(words):
    made = Decision(Verdict.ACCEPT, "ada", b.START_S, "m1", id="d9")
    ordered = replace(made, verdict=Verdict.MITIGATE, proposal=None)
    assert decision_view(made, OPEN).text() == words(name="answer")
    assert decision_view(ordered, b.snapshot()).text() == words(name="order")


def test_a_report_and_a_terminal_tell_what_waits_and_what_was_done():
    done = b.mitigation("m1", BackupWorkers(2), status=ProposalStatus.APPLIED, decision="d9")
    snapshot = replace(OPEN, mitigations=(done, b.mitigation("m2")))
    html = report_html(snapshot, b.series())
    assert "Open action m2: restart worker-1" in html
    assert "go on without the 2 slowest workers of each step" in html
    assert "worker-1 is slow" in html
    console = Console(width=120, height=80)
    with console.capture() as capture:
        console.print(render(snapshot))
    assert "action m2: restart worker-1" in capture.get()


def test_a_list_of_jobs_says_that_an_action_waits():
    told = summarize(b.snapshot(proposals=(), mitigations=(b.mitigation(),)))
    assert (told.open_proposal, told.open_mitigation, told.waiting) == (None, "m1", ("m1",))
    assert "m1" in jobs_view([told]).text()
    assert summarize(OPEN).waiting == ("p2", "m1")
    assert told.outlook.mitigation.gain == 0.12
