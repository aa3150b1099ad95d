import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
from bokeh.models import Button, Select
from panel.config import _cleanup_panel
from support.jobs import builders as b
from support.jobs.masters import Master
from support.jobs.orders import ordered
from support.waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.actions import BackupWorkers
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.jobs.review import Answer
from dlrover_nb.widgets.jobs.whatif import Axis
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.chart_grid import FIT_EVERY, NO_MORE
from dlrover_nb.widgets.live.live_view import LiveView


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def view(master) -> LiveView:
    made = LiveView(JobHandle("quick-start", master, user="ada"), Poller())
    made.view_model._monotonic = lambda: made.view_model._heard_s  # no picture is stale on a slow machine
    return made


@pytest.fixture
def screen(view):
    return view._new_screen()


def answered(view) -> bool:
    asked = view.view_model.state().request
    return asked is not None and asked.answer is not Answer.ASKED


def press(screen, label: str, n: int = 1) -> None:
    (version,) = screen._press.tags
    screen._press.value = f"{label}\n60000\n{version}\n{n}"


def redraw(view, screen) -> None:
    view.view_model.fetch()
    screen._show(view.view_model.state())


def move(screen, axis: Axis, number: float) -> None:
    """Move a slider as the browser does: its index changes."""
    screen.sliders.knobs[axis].at = screen.sliders._ladders[axis].values.index(number)


def drawn(screen) -> None:
    """Draw once the master has said what the sliders' plan brings."""
    until(lambda: screen.sliders.consequence.weighed is not None)
    screen._show(screen._view_model.state())


def test_the_buttons_follow_the_open_proposal(master, view, screen):
    assert screen.buttons.accept.label == "Accept p2"
    master.step("p2", ProposalStatus.REJECTED)
    redraw(view, screen)
    assert screen.buttons.accept.label == "Accept"
    assert screen.buttons.accept.disabled
    assert screen.buttons.reject.disabled


def test_a_press_means_the_proposal_on_the_button_even_if_the_view_moved_on(master, view, screen):
    press(screen, "Accept p1")  # the label that the browser still showed
    until(lambda: answered(view))
    assert view.view_model.state().request.answer is Answer.REFUSED
    assert not master.asked


def test_a_press_of_a_button_that_has_just_changed_is_not_sent(master, view, screen):
    screen._press.value = "Accept p2\n799\nv0\n1"
    asked = view.view_model.state().request
    assert asked.answer is Answer.REFUSED
    assert "had just changed to 'Accept p2'" in asked.why
    assert not master.asked
    redraw(view, screen)
    assert "Refused to accept p2" in screen._message.text
    assert not screen.buttons.accept.disabled
    screen._press.value = "Accept p2\n800\nv0\n2"
    until(lambda: answered(view))
    assert [d.proposal for d in master.asked] == ["p2"]


def test_a_button_means_the_same_whatever_the_plan_of_the_sliders(master, view, screen):
    before = screen.sliders.send.tags
    move(screen, Axis.PS_CPU, 0.75)
    screen._show(view.view_model.state())
    assert screen.sliders.send.tags == before
    master.state = b.snapshot(proposals=(b.proposal("p3"),))
    redraw(view, screen)
    assert screen.sliders.send.tags != before
    assert screen.buttons.accept.tags == ["accept p3"]


def test_a_plan_that_is_no_change_cannot_be_sent_and_the_button_says_why(master, view, screen):
    assert screen.sliders.send.label == "This is the plan of p2"
    assert screen.sliders.send.disabled
    screen.sliders.choose(b.NOW_PLAN)
    redraw(view, screen)
    assert screen.sliders.send.label == "This is the current plan"
    assert screen.sliders.send.disabled


def test_the_answer_to_an_override_is_told_at_its_button(master, view, screen):
    move(screen, Axis.PS_CPU, 0.75)
    screen._show(view.view_model.state())
    press(screen, screen.sliders.send.label)
    until(lambda: answered(view))
    redraw(view, screen)
    assert "Your plan instead of p2" in screen.sliders._answer.text
    assert screen.buttons.accept.disabled


def test_a_reason_goes_with_one_decision_only(master, view, screen):
    screen.buttons._why.value = "too dear"
    press(screen, "Accept p1")
    until(lambda: answered(view))
    redraw(view, screen)
    assert screen.buttons.reason == "too dear", "it was refused: the reason is still to be kept"
    press(screen, "Reject p2")
    until(lambda: master.asked and answered(view))
    redraw(view, screen)
    assert screen.buttons.reason == ""


def test_a_rejection_is_sent_with_its_reason(master, view, screen):
    screen.buttons._why.value = "too dear"
    press(screen, "Reject p2")
    until(lambda: answered(view))
    (decision,) = master.asked
    assert (decision.verdict, decision.proposal, decision.why) == (Verdict.REJECT, "p2", "too dear")


def test_untouched_sliders_follow_later_proposals(master, view, screen):
    assert screen.sliders.plan == b.BETTER_PLAN
    later = b.proposal("p3", target=b.plan(3, 2))
    master.state = b.snapshot(proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), later))
    redraw(view, screen)
    assert screen.sliders.plan == later.candidate.plan
    assert screen.sliders.knobs[Axis.WORKERS].choices[screen.sliders.knobs[Axis.WORKERS].at] == "3"
    assert screen.sliders.back.disabled


def test_sliders_that_the_user_moved_stay_until_he_goes_back(master, view, screen):
    move(screen, Axis.WORKERS, 1)
    mine = screen.sliders.plan
    assert mine == b.plan(1, 1, 0.5, 0.5)
    master.state = b.snapshot(proposals=(b.proposal("p3", target=b.plan(3, 2)),))
    redraw(view, screen)
    assert screen.sliders.plan == mine
    screen.sliders._go_back(None)
    assert screen.sliders.plan == b.plan(3, 2)


def test_sliders_pass_over_the_plan_of_an_older_decision(master, view, screen):
    view.view_model.accept("p2", why="")
    until(lambda: answered(view))
    master.state = b.snapshot(target=b.BETTER_PLAN, proposals=(b.proposal("p3", target=b.plan(1, 2)),))
    redraw(view, screen)
    assert screen.sliders.plan == b.plan(1, 2)
    screen.sliders.choose(b.BETTER_PLAN)
    redraw(view, screen)
    assert screen.sliders.plan == b.BETTER_PLAN, "the user's move must stay, though it is the plan now"


def test_a_move_that_arrives_while_a_slider_is_drawn_is_kept(view, screen):
    knob, ladder = screen.sliders.knobs[Axis.WORKERS], screen.sliders._ladders[Axis.WORKERS]
    to = next(at for at in range(len(ladder.values)) if at != ladder.at)
    knob.label = "something to draw anew"
    knob.param.watch(lambda _: setattr(knob, "at", to), "label")  # as another thread would
    screen._show(view.view_model.state())
    assert screen.sliders.plan.worker.count == ladder.values[to]


def test_a_move_shows_what_the_plan_would_bring_and_names_it_on_the_button(master, screen):
    move(screen, Axis.WORKERS, 1)
    screen._show(screen._view_model.state())
    drawn(screen)
    assert master.weighed[-1] == (b.plan(1, 1, 0.5, 0.5),)
    assert "samples/s" in screen.sliders._words.text
    assert screen.sliders.send.label == "Override p2 with 1w x 0.5 + 1p x 0.5"
    assert not screen.sliders.send.disabled


def test_what_was_weighed_is_not_asked_again_until_the_job_has_changed(master, view, screen):
    drawn(screen)
    n = len(master.weighed)
    redraw(view, screen)
    assert len(master.weighed) == n
    master.step("p2", ProposalStatus.REJECTED)
    redraw(view, screen)
    until(lambda: len(master.weighed) == n + 1)


def test_an_impossible_plan_is_refused_in_words_and_cannot_be_sent(screen):
    move(screen, Axis.WORKERS, 4)
    screen._show(screen._view_model.state())
    drawn(screen)
    assert "Not possible: the plan must fit on the machines" in screen.sliders._words.text
    assert screen.sliders.send.disabled


def test_an_override_is_sent_with_the_plan_on_the_button(master, view, screen):
    move(screen, Axis.PS_CPU, 0.75)
    screen._show(view.view_model.state())
    press(screen, screen.sliders.send.label)
    until(lambda: answered(view))
    (decision,) = master.asked
    assert (decision.verdict, decision.proposal) == (Verdict.OVERRIDE, "p2")
    assert decision.plan == b.plan(2, 1, 0.5, 0.75)


def test_a_press_of_a_button_that_named_another_plan_is_refused(master, view, screen):
    move(screen, Axis.PS_CPU, 0.25)
    screen._show(view.view_model.state())
    label = screen.sliders.send.label
    move(screen, Axis.PS_CPU, 0.75)
    press(screen, label)
    assert view.view_model.state().request.answer is Answer.REFUSED
    assert "sliders have moved since" in view.view_model.state().request.why
    assert not master.asked


def test_without_a_proposal_the_button_scales_and_the_sliders_follow_the_job_again(master, view, screen):
    master.step("p2", ProposalStatus.REJECTED)
    redraw(view, screen)
    assert screen.sliders.plan == b.NOW_PLAN
    assert screen.sliders.send.disabled
    assert screen.sliders.send.label == "This is the current plan"
    move(screen, Axis.WORKERS, 2)
    screen._show(view.view_model.state())
    assert screen.sliders.send.label == "Scale to 2w x 0.5 + 1p x 0.25"
    press(screen, screen.sliders.send.label)
    until(lambda: answered(view))
    redraw(view, screen)
    assert master.asked[-1].verdict is Verdict.SCALE
    assert "applied" in screen._message.text
    assert screen.sliders.back.disabled


def test_undo_takes_back_the_decision_on_the_button(master, view, screen):
    view.view_model.scale(b.plan(2, 1), version=view.view_model.state().snapshot.version)
    until(lambda: answered(view))
    redraw(view, screen)
    label = screen.buttons.undo.label
    assert label == f"Undo {master.asked[-1].id}"
    assert "goes back to 1w x 0.5 + 1p x 0.25" in screen.buttons._undone.text
    press(screen, label)
    until(lambda: master.state.target == b.NOW_PLAN and answered(view))
    press(screen, label, 2)  # as a page does that did not hear of it
    until(lambda: view.view_model.state().request.answer is Answer.REFUSED)
    assert "no longer the latest" in view.view_model.state().request.why


def test_a_change_that_is_in_place_by_now_is_not_taken_back_by_its_cancel(master, view, screen):
    master.begin(b.plan(2, 1), "d2")
    redraw(view, screen)
    label = screen.buttons.undo.label
    assert label == "Cancel d2"
    master.state = replace(master.state, running=b.plan(2, 1), under_way="", phase=JobPhase.TRAINING)
    press(screen, label)
    until(lambda: answered(view))
    assert "so there is nothing to cancel" in view.view_model.state().request.why
    assert not master.asked


def test_a_plan_or_a_mode_of_an_old_picture_is_refused(master, view, screen):
    redraw(view, screen)
    (version,) = screen._press.tags
    view.view_model.set_mode(Mode.AUTO, version=version)
    until(lambda: answered(view))
    redraw(view, screen)
    screen._press.value = f"mode to manual\n60000\n{version}\n1"
    until(lambda: view.view_model.state().request.answer is Answer.REFUSED)
    assert master.state.mode is Mode.AUTO


@pytest.mark.parametrize("label", ["Accept", "Reject", "Undo", "Override with 3w x 0.5 + 1p x 0.25"])
def test_a_press_that_names_nothing_is_not_taken_for_what_is_open(master, view, screen, label):
    press(screen, label)
    assert "named nothing that is open" in view.view_model.state().request.why
    assert not master.asked


def test_the_mode_on_the_screen_is_the_one_that_holds(master, view, screen):
    assert screen.buttons.mode.value == Mode.SUGGEST
    press(screen, "mode to auto")
    until(lambda: answered(view))
    redraw(view, screen)
    assert master.state.mode is Mode.AUTO
    assert screen.buttons.mode.value == Mode.AUTO
    assert "the job is in auto mode" in screen._message.text
    master.reachable = False
    screen.buttons.mode.value = "manual"  # as the page has it, once it is chosen
    press(screen, "mode to manual")
    until(lambda: view.view_model.state().request.answer is Answer.REFUSED)
    screen._show(view.view_model.state())
    assert screen.buttons.mode.value == Mode.AUTO


def test_a_tapped_plan_sets_the_sliders(screen):
    fastest = b.front().candidates[-1]
    screen._tapped(fastest)
    assert screen.sliders.plan == fastest.plan


def test_the_cross_lies_where_the_plan_of_the_sliders_does(screen):
    drawn(screen)
    candidate = screen.sliders.consequence.candidate
    assert screen.chart_grid._on_front._at.model.data["x"] == [candidate.cost]
    assert screen.chart_grid._on_curve._at.model.data["x"] == [candidate.plan.worker.count]
    screen.chart_grid.axis.value = "ps_cpu"
    screen._show(screen._view_model.state())
    assert screen.chart_grid._on_curve._at.model.data["x"] == [candidate.plan.ps.cpu]


def test_a_chart_that_is_not_shown_is_not_updated(screen, monkeypatch):
    updated = []
    for name, figure in screen.chart_grid.figures.items():
        monkeypatch.setattr(figure, "update", lambda *_, name=name: updated.append(name))
    screen.chart_grid.more.value = NO_MORE
    updated.clear()
    for _ in range(FIT_EVERY):
        screen._show(screen._view_model.state())
    assert set(updated) == {"curve", "front", "memory", "throughput"}


def test_charts_of_the_fit_are_drawn_every_few_ticks_and_at_once_when_something_happened(
    master, view, screen, monkeypatch
):
    updated = []
    for name, figure in screen.chart_grid.figures.items():
        monkeypatch.setattr(figure, "update", lambda *_, name=name: updated.append(name))
    for _ in range(4 * FIT_EVERY):
        screen._show(view.view_model.state())
    assert [updated.count(name) for name in ("front", "curve", "memory")] == [4, 4, 4 * FIT_EVERY]
    updated.clear()
    master.step("p2", ProposalStatus.REJECTED)
    view.view_model.fetch()
    screen._show(view.view_model.state())
    assert "front" in updated
    updated.clear()
    screen.chart_grid.axis.value = "ps_cpu"
    screen._show(view.view_model.state())
    assert "curve" in updated


def test_why_is_asked_for_and_shown_on_request(screen):
    assert not screen._why.text
    screen._toggle_why(None)
    until(lambda: "Why proposal p2" in screen._why_words)
    screen._show(screen._view_model.state())
    assert "Why proposal p2" in screen._why.text
    screen._toggle_why(None)
    screen._show(screen._view_model.state())
    assert not screen._why.text


def test_an_unreachable_master_is_told_by_the_sliders_and_asked_again(master, view, screen):
    drawn(screen)
    master.reachable = False
    move(screen, Axis.WORKERS, 1)
    screen._show(view.view_model.state())
    until(lambda: screen.sliders.consequence.error)
    screen._show(view.view_model.state())
    assert "does not answer" in screen.sliders._words.text
    master.reachable = True
    redraw(view, screen)
    drawn(screen)
    assert "samples/s" in screen.sliders._words.text


def test_what_could_not_be_weighed_is_asked_again_with_the_next_picture_only(master, view, screen):
    drawn(screen)
    master.reachable = False
    move(screen, Axis.WORKERS, 1)
    screen._show(view.view_model.state())
    until(lambda: screen.sliders.consequence.error)
    master.reachable, n = True, len(master.weighed)
    screen._show(view.view_model.state())  # the error's own drawing
    assert not screen.sliders._latest._is_running
    assert len(master.weighed) == n
    redraw(view, screen)
    drawn(screen)
    assert len(master.weighed) == n + 1


def test_an_ended_job_is_not_asked_and_takes_no_move(master):
    master.state = b.snapshot(phase=JobPhase.SUCCEEDED)
    screen = LiveView(JobHandle("quick-start", master), Poller())._new_screen()
    assert not master.weighed
    assert all(knob.fixed for knob in screen.sliders.knobs.values())
    assert screen.sliders.send.disabled
    assert screen.buttons.undo.disabled


@pytest.mark.more
def test_a_screen_that_is_gone_is_freed_and_a_view_that_nobody_sees_is_not_polled(view):
    screen = view._new_screen()
    root = screen.layout.get_root()
    drawn(screen)
    _cleanup_panel(root.ref["id"])  # as Panel does when a cell's output is cleared
    gone = weakref.ref(screen)
    assert view in view._poller._all()
    view._drop(screen)
    assert view not in view._poller._all()
    del screen, root
    until(lambda: gc.collect() >= 0 and gone() is None)
    kept = view._new_screen()
    assert view in view._poller._all()
    view._drop(kept)


def test_the_output_of_a_cell_that_is_gone_is_told_once(view):
    screen = view._new_screen()
    layout = screen.stage.notebook_layout()
    layout.get_root()
    (ref,) = layout._models
    comm = SimpleNamespace(_comm=object())
    layout._comms[ref] = (comm, comm)
    assert screen.stage._is_open()
    assert view._screens == [screen]
    layout._comms.clear()  # as Panel does when its page says that the output was cleared
    screen.flush()
    screen.flush()
    assert view._screens == []


def test_a_screen_of_somebody_who_may_not_act_has_no_control_that_sends_anything(master):
    """The buttons are absent: what is not in a document can be neither pressed nor set by a message."""
    view = LiveView(JobHandle("quick-start", master, user="vera"), Poller(), can_act=False)
    screen = view._new_screen()
    redraw(view, screen)
    told = {model.label for model in screen.layout.get_root().select({"type": Button})}
    assert not any(label.startswith(("Accept", "Reject", "Undo", "Override", "This is")) for label in told)
    assert any(label.startswith("Back to the") for label in told), "what if is for everybody"
    assert not [*screen.layout.get_root().select({"type": Select, "title": "Who decides"})]
    assert not hasattr(screen, "_press")


def test_a_screen_of_somebody_who_may_act_has_them(view):
    screen = view._new_screen()
    told = {model.label for model in screen.layout.get_root().select({"type": Button})}
    assert any(label.startswith("Accept") for label in told)
    assert [*screen.layout.get_root().select({"type": Select})].count(screen.buttons.mode) == 1


@pytest.fixture
def acting(master, view, screen):
    """Let an action against a straggler wait beside the proposal."""
    master.state = b.snapshot(mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
    redraw(view, screen)
    return screen


def test_without_an_action_its_card_takes_no_room(screen):
    action = screen.action
    assert not any(part.visible for part in (action.accept, action.reject, action._card))


def test_an_open_action_has_a_card_and_buttons_of_its_own(acting):
    assert "Action m1: restart worker-1" in acting.action._card.text
    assert "trains about 12 % faster" in acting.action._card.text
    assert "the start of another worker" in acting.action._card.text
    assert "worker-1 is slow: 24.0 ms" in acting._header.text
    assert "Action m1 (restart worker-1) waits for your decision." in acting._message.text
    assert (acting.action.accept.label, acting.action.reject.label) == ("Accept m1", "Reject m1")
    assert acting.action.accept.tags == ["accept m1"]
    assert (acting.buttons.accept.label, acting.buttons.reject.label) == ("Accept p2", "Reject p2")


@pytest.mark.more
@pytest.mark.parametrize(
    ("verb", "status"), [("Accept", "accepted, not in effect yet"), ("Reject", "rejected")]
)
def test_an_answer_to_an_action_is_sent_with_the_reason_and_told(master, view, acting, verb, status):
    acting.buttons._why.value = "so be it"
    press(acting, f"{verb} m1")
    until(lambda: answered(view))
    redraw(view, acting)
    (made,) = master.asked
    assert (made.proposal, made.why, made.verdict) == ("m1", "so be it", Verdict(verb.lower()))
    assert f"Action m1 as {made.id}: {status}." in acting._message.text
    assert f"({status})" in acting.action._card.text
    assert not acting.action.accept.visible
    assert acting.buttons.accept.label == "Accept p2", "the proposal waits on"


def test_an_action_of_a_stale_view_or_of_an_ended_job_cannot_be_answered(master, view, acting):
    master.state = b.snapshot(mitigations=(b.mitigation(),), phase=JobPhase.SUCCEEDED)
    redraw(view, acting)
    assert not acting.action._card.visible
    assert acting.action.accept.disabled
    assert "waits for your decision" not in acting._message.text.replace("Proposal p2 (IMPROVE) waits", "")


def test_undo_of_an_action_says_what_it_does(master, view, screen):
    view.view_model._handle.decide(ordered(BackupWorkers(1)))
    redraw(view, screen)
    assert screen.buttons.undo.label == "Undo d2"
    assert "Undo d2 (mitigate go on without the 1 slowest worker" in screen.buttons._undone.text
