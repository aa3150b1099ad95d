from dataclasses import replace

import pytest
from support.cases import for_each
from support.jobs import builders as b

from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalKind, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import NodePhase, NodeView, PlanMarker, waits_told
from dlrover_nb.core.structs.views.summary import summarize
from dlrover_nb.widgets.blocks import Tone
from dlrover_nb.widgets.jobs.plans import state_words
from dlrover_nb.widgets.jobs.review_card import (
    LOCK_S,
    Answer,
    Link,
    PendingAction,
    card_html,
    header_html,
    meaning,
    review,
    too_early,
    undo_label,
    undo_words,
)
from dlrover_nb.widgets.jobs.status import status_view

FRESH = Link(0.5)
TAKEN = PendingAction(Verdict.ACCEPT, "p2", Answer.TAKEN, Decision(Verdict.ACCEPT, "ada", 0.0, "p2", id="d2"))


def with_status(status: ProposalStatus, note: str = ""):
    return b.snapshot(proposals=(b.proposal("p2", status=status, note=note),))


@for_each("status", ProposalStatus)
def test_buttons_can_be_pressed_for_a_pending_proposal_only(status):
    card = review(with_status(status), None, FRESH)
    assert card.can_decide is (status is ProposalStatus.PENDING)


@for_each("status", ProposalStatus)
def test_only_an_applied_proposal_is_called_applied(status):
    message = review(with_status(status), TAKEN, FRESH).message
    assert ("applied after" in message) is (status is ProposalStatus.APPLIED and "pause" in message)
    assert "done" not in message
    if status not in {ProposalStatus.PENDING, ProposalStatus.APPLIED}:
        assert " applied" not in message.replace("not applied yet", "")


def test_a_press_says_asked_and_locks_the_buttons_until_the_master_answers(words):
    card = review(b.snapshot(), PendingAction(Verdict.ACCEPT, "p2"), FRESH)
    assert card.message == words
    assert not card.can_decide


def test_a_refusal_is_told_with_its_reason_and_the_newer_proposal_is_open(words):
    stale = PendingAction(
        Verdict.ACCEPT, "p1", Answer.REFUSED, why="proposal p1 is no longer open\n  superseded by p2"
    )
    card = review(b.snapshot(), stale, FRESH)
    assert card.message == words
    assert card.can_decide


def test_the_pause_of_an_applied_plan_is_the_measured_one(words):
    applied = with_status(ProposalStatus.APPLIED)
    marker = replace(applied.markers[-1], at_s=applied.proposals[0].created_at_s + 5, pause_s=3.25)
    message = review(replace(applied, markers=(*applied.markers, marker)), TAKEN, FRESH).message
    assert message == words


@pytest.mark.parametrize("link", [Link(14.0), Link(1.0, "the master does not answer")])
def test_nothing_can_be_decided_from_a_stale_picture(link):
    card = review(b.snapshot(), None, link)
    assert not card.can_decide
    assert "out of date" in card.message
    assert link.badge in header_html(b.snapshot(), link)


def test_stale_badge_tells_the_age():
    assert Link(14.0).badge == "stale 14 s"
    assert Link(1.0).badge == ""


def test_a_finished_job_takes_no_decision_and_is_never_stale():
    snapshot = b.snapshot(phase=JobPhase.SUCCEEDED)
    assert not review(snapshot, None, Link(999.0)).can_decide
    assert "stale" not in header_html(snapshot, Link(999.0))


def test_an_exploring_proposal_says_so_on_its_card(words, lines_of):
    snapshot = b.snapshot(proposals=(b.proposal(kind=ProposalKind.EXPLORE),))
    html = card_html(review(snapshot, None, FRESH), snapshot)
    assert lines_of(html).splitlines()[:3] == words


def test_names_from_the_cluster_are_escaped():
    snapshot = b.snapshot(message=b.HOSTILE, proposals=(b.proposal(why=b.HOSTILE, note=b.HOSTILE),))
    card = review(
        snapshot, PendingAction(Verdict.ACCEPT, "p1", Answer.REFUSED, why=b.HOSTILE), Link(1.0, b.HOSTILE)
    )
    out = card_html(card, snapshot) + header_html(snapshot, Link(1.0, b.HOSTILE))
    assert "<script" not in out
    assert "&lt;script" in out


def test_an_override_is_told_as_the_users_own_plan(words):
    mine = PendingAction(
        Verdict.OVERRIDE, "p2", Answer.TAKEN, Decision(Verdict.OVERRIDE, "ada", 0.0, "p2", id="d2")
    )
    assert review(with_status(ProposalStatus.APPLYING), mine, FRESH).message == words


def test_the_live_view_says_once_what_a_node_waits_for():
    waiting = NodeView(
        "worker-1", Role.WORKER, NodePhase.PENDING, 1.0, 512, False, b.START_S, waits_for=b.HOSTILE
    )
    html = header_html(b.snapshot(nodes=(waiting,)), FRESH)
    assert "Waiting: &lt;script&gt;" in html
    assert "(worker-1)" in html
    assert b.HOSTILE not in html
    [line] = waits_told([waiting])
    assert header_html(b.snapshot(nodes=(waiting,), message=line), FRESH).count("(worker-1)") == 1
    assert "(worker-1)" not in header_html(b.snapshot(nodes=(waiting,), phase=JobPhase.STOPPED), FRESH)


def test_the_head_line_counts_down_to_full_memory_and_an_ended_job_has_no_such_clock(words, lines_of):
    heads = [lines_of(header_html(b.snapshot(), link)) for link in (FRESH, Link(40.0), Link(400.0))]
    assert [line for head in heads for line in head.splitlines() if "memory full" in line] == words
    assert "memory full" not in header_html(b.snapshot(phase=JobPhase.SUCCEEDED), FRESH)


def test_a_change_that_answers_no_proposal_is_told_by_what_has_become_of_it(words):
    scale = Decision(Verdict.SCALE, "ada", 0.0, plan=b.BETTER_PLAN, id="d2")
    asked = PendingAction(
        Verdict.SCALE, answer=Answer.TAKEN, decision=scale, aim="scale to 2w x 0.5 + 1p x 0.5"
    )
    assert review(b.snapshot(), asked, FRESH).message == words(name="it waits")
    runs = b.snapshot(running=b.BETTER_PLAN, target=b.BETTER_PLAN)
    assert review(runs, asked, FRESH).message == words(name="it runs")


def test_undo_says_what_it_goes_back_to(words):
    done = Decision(Verdict.MODE, "ada", 0.0, mode=Mode.AUTO, id="d2")
    back = Decision(Verdict.MODE, "", 0.0, mode=Mode.SUGGEST, undoes="d2")
    assert undo_words(b.snapshot(decisions=(done,), undo=back)) == words
    assert undo_words(b.snapshot()) == ""
    assert undo_label(b.snapshot()) == "Undo"


def test_a_change_under_way_is_cancelled_and_the_status_names_both_plans():
    back = Decision(Verdict.SCALE, "", 0.0, plan=b.NOW_PLAN, undoes="d2")
    state = {
        "undo": back,
        "target": b.BETTER_PLAN,
        "running": None,
        "markers": (PlanMarker(0.0, b.NOW_PLAN, 0.0, None),),
    }
    waiting = b.snapshot(under_way="d2", **state)
    assert undo_label(waiting) == "Cancel d2"
    assert undo_words(waiting).startswith("Cancel d2 (")
    text = str(status_view(waiting, None))
    assert f"{b.NOW_PLAN} until now, changing to {b.BETTER_PLAN}" in " ".join(text.split())
    assert f"%dlrover undo {waiting.spec.name} d2" in text
    later = b.snapshot(under_way="d1", **state)  # something else was decided since
    assert undo_label(later) == "Undo d2"
    assert "%dlrover undo" not in str(status_view(later, None))


def test_every_view_tells_the_plan_that_ran_and_the_wanted_one_apart():
    now, better = b.NOW_PLAN, b.BETTER_PLAN
    ran = (PlanMarker(0.0, now, 0.0, None),)
    waiting = b.snapshot(phase=JobPhase.RESCALING, target=better, running=None, markers=ran, under_way="d9")
    assert f"plan {now.short} until now, changing to {better.short}" in header_html(waiting, FRESH)
    assert summarize(waiting).plan == now
    back = replace(waiting, target=now)
    assert f"plan {now.short}, changing back to it" in header_html(back, FRESH)
    first = b.snapshot(phase=JobPhase.STARTING, running=None, markers=())
    assert f"plan starting with {first.target.short}" in header_html(first, FRESH)
    assert f"plan {now.short} &middot;" in header_html(b.snapshot(), FRESH)


def test_a_decision_on_a_plan_says_whether_it_ran(words):
    scale = Decision(Verdict.SCALE, "ada", 10.0, plan=b.BETTER_PLAN, id="d9")
    state = {"decisions": (scale,), "running": None, "target": b.BETTER_PLAN, "markers": ()}
    under_way = b.snapshot(under_way="d9", **state)
    back = replace(under_way, under_way="", running=b.NOW_PLAN)
    since = replace(back, markers=(PlanMarker(20.0, b.BETTER_PLAN, 0.0, None),))
    pictures = {"under way": under_way, "taken back": back, "replaced": since}
    assert {name: state_words(scale, None, shown) for name, shown in pictures.items()} == words


def test_an_ended_job_shows_its_mean_throughput_and_its_last_plan():
    now = b.snapshot()
    train = replace(now.train, n_sample_done=1_000_000)
    ended = b.snapshot(
        phase=JobPhase.SUCCEEDED,
        samples_per_s=0.0,
        running=None,
        train=train,
        ended_at_s=now.started_at_s + 100.0,
    )
    for text in (header_html(ended, FRESH), str(status_view(ended, None))):
        assert "10,000 samples/s on average" in text
        assert "changing to" not in text
    assert "samples/s" not in header_html(replace(ended, train=replace(train, n_sample_done=0)), FRESH)


def test_a_failed_job_looks_failed_before_anything_else_is_read():
    failed = b.snapshot(phase=JobPhase.FAILED, message="worker-0 ended: exit code 137", ended_at_s=b.START_S)
    head = header_html(failed, FRESH)
    assert head.index("<strong") < head.index("failed: worker-0 ended: exit code 137")
    assert head.count("exit code 137") == 1
    first = status_view(failed, None).blocks[0]
    assert first.tone is Tone.FAILED
    assert first.text.startswith("Failed after ")
    assert first.text.endswith(": worker-0 ended: exit code 137.")
    assert not status_view(b.snapshot(phase=JobPhase.SUCCEEDED), None).blocks[0].tone


@for_each(
    ("label", "means"),
    [
        ("Accept p2", "accept p2"), ("Override p2 with 3w x 0.5", "override p2"), ("Undo d3", "undo d3"),
        ("Scale to 2w x 1", "scale"), ("Accept", "accept"), ("This is the current plan", "This is the current plan"),
    ],
)  # fmt: skip
def test_a_button_means_its_action_and_its_object(label, means):
    assert meaning(label) == means


def test_a_press_counts_only_once_the_button_has_stood_for_a_moment(words):
    assert too_early("Accept p2", LOCK_S - 0.001) == words
    assert too_early("Accept p2", LOCK_S) == ""


def test_the_card_of_an_open_proposal_tells_both_predictions_by_name(words, lines_of):
    snapshot = b.snapshot(proposals=(b.proposal(target=b.plan(2, 1, 0.5, 0.25)),))
    html = card_html(review(snapshot, None, FRESH), snapshot)
    assert [line for line in lines_of(html).splitlines() if "predicted" in line] == words
    closed = b.snapshot(
        proposals=(b.proposal(target=b.plan(2, 1, 0.5, 0.25), status=ProposalStatus.APPLIED),)
    )
    assert "predicted now" not in card_html(review(closed, None, FRESH), closed)
