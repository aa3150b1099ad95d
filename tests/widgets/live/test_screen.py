import gc
import weakref
from dataclasses import replace
from types import SimpleNamespace

import pytest
from bokeh.models import Button, Select, TextInput
from panel.config import _cleanup_panel
from support.jobs import builders as b
from support.jobs.masters import Master
from support.jobs.orders import ordered
from support.jobs.played_page import PlayedPage
from support.waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.actions import BackupWorkers
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.widgets.charts import PLANS
from dlrover_nb.widgets.jobs.review_card import Answer
from dlrover_nb.widgets.jobs.whatif import Axis
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.chart_grid import FIT_EVERY
from dlrover_nb.widgets.live.job_screen import Screen
from dlrover_nb.widgets.live.job_view_model import JobViewModel
from dlrover_nb.widgets.live.live_view import LiveView


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def model(master) -> JobViewModel:
    return model_of(master)


def model_of(master) -> JobViewModel:
    """Return the view model of a job whose picture is never stale, on however slow a machine."""
    return JobViewModel(JobHandle("quick-start", master, user="ada"), lambda: None, monotonic=lambda: 0.0)


@pytest.fixture
def page(model) -> PlayedPage:
    return PlayedPage(model)


@pytest.fixture
def screen(page):
    return page.screen


def answered(model) -> bool:
    asked = model.state().request
    return asked is not None and asked.answer is not Answer.ASKED


def drawn(page) -> None:
    """Draw once the master has said what the sliders' plan brings."""
    until(lambda: page.screen.sliders.consequence.weighed is not None)
    page.draw()


def test_the_buttons_follow_the_open_proposal(master, page, screen):
    assert screen.buttons.accept.label == "Do it (p2)"
    master.step("p2", ProposalStatus.REJECTED)
    page.redraw()
    assert screen.buttons.accept.label == "Do it"
    assert screen.buttons.accept.disabled
    assert screen.buttons.reject.disabled


def test_a_press_means_the_proposal_on_the_button_even_if_the_view_moved_on(master, model, page):
    page.press("Accept p1")  # the label that the browser still showed
    until(lambda: answered(model))
    assert model.state().request.answer is Answer.REFUSED
    assert not master.asked


def test_a_press_of_a_button_that_has_just_changed_is_not_sent(master, model, page, screen):
    page.press("Accept p2", shown_ms=799)
    asked = model.state().request
    assert asked.answer is Answer.REFUSED
    assert "changed to 'Accept p2'" in asked.why
    assert not master.asked
    page.redraw()
    assert "Could not accept p2" in page.status
    assert not screen.buttons.accept.disabled
    page.press("Accept p2", 2, shown_ms=800)
    until(lambda: answered(model))
    assert [d.proposal for d in master.asked] == ["p2"]


def test_a_button_means_the_same_whatever_the_plan_of_the_sliders(master, page, screen):
    before = screen.sliders.send.tags
    page.move(Axis.PS_CPU, "0.75")
    page.draw()
    assert screen.sliders.send.tags == before
    master.state = b.snapshot(proposals=(b.proposal("p3"),))
    page.redraw()
    assert screen.sliders.send.tags != before
    assert screen.buttons.accept.tags == ["accept p3"]


def test_a_plan_that_is_no_change_cannot_be_sent_and_the_button_says_why(master, page, screen, words):
    assert screen.sliders.send.label == words
    assert screen.sliders.send.disabled
    screen.sliders.choose(b.NOW_PLAN)
    page.redraw()
    assert screen.sliders.send.label == words
    assert screen.sliders.send.disabled


def test_the_answer_to_an_override_is_told_at_its_button(master, model, page, screen):
    page.move(Axis.PS_CPU, "0.75")
    page.draw()
    page.press(screen.sliders.send.label)
    until(lambda: answered(model))
    page.redraw()
    assert "chose another plan instead of p2" in page.text
    assert screen.buttons.accept.disabled


def test_a_reason_goes_with_one_decision_only(master, model, page, screen):
    page.field("Reason").value = "too dear"
    page.press("Accept p1")
    until(lambda: answered(model))
    page.redraw()
    assert screen.buttons.reason == "too dear", "it was refused: the reason is still to be kept"
    page.press("Reject p2")
    until(lambda: master.asked and answered(model))
    page.redraw()
    assert screen.buttons.reason == ""


def test_a_rejection_is_sent_with_its_reason(master, model, page):
    page.field("Reason").value = "too dear"
    page.press("Reject p2")
    until(lambda: answered(model))
    (decision,) = master.asked
    assert (decision.verdict, decision.proposal, decision.why) == (Verdict.REJECT, "p2", "too dear")


def test_untouched_sliders_follow_later_proposals(master, page, screen):
    assert screen.sliders.plan == b.BETTER_PLAN
    later = b.proposal("p3", target=b.plan(3, 2))
    master.state = b.snapshot(proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), later))
    page.redraw()
    assert screen.sliders.plan == later.candidate.plan
    assert screen.sliders.knobs[Axis.WORKERS].choices[screen.sliders.knobs[Axis.WORKERS].at] == "3"
    assert screen.sliders.back.disabled


def test_sliders_that_the_user_moved_stay_until_he_goes_back(master, page, screen):
    page.move(Axis.WORKERS, "1")
    mine = screen.sliders.plan
    assert mine == b.plan(1, 1, 0.5, 0.5)
    master.state = b.snapshot(proposals=(b.proposal("p3", target=b.plan(3, 2)),))
    page.redraw()
    assert screen.sliders.plan == mine
    page.click("Back to the proposal")
    assert screen.sliders.plan == b.plan(3, 2)


def test_sliders_pass_over_the_plan_of_an_older_decision(master, model, page, screen):
    model.accept("p2", why="")
    until(lambda: answered(model))
    master.state = b.snapshot(target=b.BETTER_PLAN, proposals=(b.proposal("p3", target=b.plan(1, 2)),))
    page.redraw()
    assert screen.sliders.plan == b.plan(1, 2)
    screen.sliders.choose(b.BETTER_PLAN)
    page.redraw()
    assert screen.sliders.plan == b.BETTER_PLAN, "the user's move must stay, though it is the plan now"


def test_a_move_that_arrives_while_a_slider_is_drawn_is_kept(page, screen):
    knob = screen.sliders.knobs[Axis.WORKERS]
    to = next(at for at in range(len(knob.choices)) if at != knob.at)
    knob.label = "something to draw anew"
    knob.param.watch(lambda _: setattr(knob, "at", to), "label")  # as another thread would
    page.draw()
    assert str(screen.sliders.plan.worker.count) == knob.choices[to]


def test_a_move_shows_what_the_plan_would_bring_and_names_it_on_the_button(master, page, screen, words):
    page.move(Axis.WORKERS, "1")
    page.draw()
    drawn(page)
    assert master.weighed[-1] == (b.plan(1, 1, 0.5, 0.5),)
    assert "samples/s" in page.text
    assert screen.sliders.send.label == words
    assert not screen.sliders.send.disabled


def test_what_was_weighed_is_not_asked_again_until_the_job_has_changed(master, page):
    drawn(page)
    n = len(master.weighed)
    page.redraw()
    assert len(master.weighed) == n
    master.step("p2", ProposalStatus.REJECTED)
    page.redraw()
    until(lambda: len(master.weighed) == n + 1)


def test_an_impossible_plan_is_refused_in_words_and_cannot_be_sent(page, screen):
    page.move(Axis.WORKERS, "4")
    page.draw()
    drawn(page)
    assert "Not possible: the plan must fit on the machines" in page.text
    assert screen.sliders.send.disabled


def test_an_override_is_sent_with_the_plan_on_the_button(master, model, page, screen):
    page.move(Axis.PS_CPU, "0.75")
    page.draw()
    page.press(screen.sliders.send.label)
    until(lambda: answered(model))
    (decision,) = master.asked
    assert (decision.verdict, decision.proposal) == (Verdict.OVERRIDE, "p2")
    assert decision.plan == b.plan(2, 1, 0.5, 0.75)


def test_a_press_of_a_button_that_named_another_plan_is_refused(master, model, page, screen):
    page.move(Axis.PS_CPU, "0.25")
    page.draw()
    label = screen.sliders.send.label
    page.move(Axis.PS_CPU, "0.75")
    page.press(label)
    assert model.state().request.answer is Answer.REFUSED
    assert "sliders have moved since" in model.state().request.why
    assert not master.asked


def test_without_a_proposal_the_button_scales_and_the_sliders_follow_the_job_again(
    master, model, page, screen, words
):
    master.step("p2", ProposalStatus.REJECTED)
    page.redraw()
    assert screen.sliders.plan == b.NOW_PLAN
    assert screen.sliders.send.disabled
    assert screen.sliders.send.label == words
    page.move(Axis.WORKERS, "2")
    page.draw()
    assert screen.sliders.send.label == words
    page.press(screen.sliders.send.label)
    until(lambda: answered(model))
    page.redraw()
    assert master.asked[-1].verdict is Verdict.SCALE
    assert "applied" in page.status
    assert screen.sliders.back.disabled


def test_undo_takes_back_the_decision_on_the_button(master, model, page, screen):
    model.scale(b.plan(2, 1), version=model.state().snapshot.version)
    until(lambda: answered(model))
    page.redraw()
    label = screen.buttons.undo.label
    assert label == f"Undo {master.asked[-1].id}"
    assert "goes back to 1w x 0.5 + 1p x 0.25" in page.text
    page.press(label)
    until(lambda: master.state.target == b.NOW_PLAN and answered(model))
    page.press(label, 2)  # as a page does that did not hear of it
    until(lambda: model.state().request.answer is Answer.REFUSED)
    assert "no longer the latest" in model.state().request.why


def test_a_change_that_is_in_place_by_now_is_not_taken_back_by_its_cancel(master, model, page, screen, words):
    master.begin(b.plan(2, 1), "d2")
    page.redraw()
    label = screen.buttons.undo.label
    assert label == "Cancel d2"
    master.state = replace(master.state, running=b.plan(2, 1), under_way="", phase=JobPhase.TRAINING)
    page.press(label)
    until(lambda: answered(model))
    assert model.state().request.why == words
    assert not master.asked


def test_a_plan_or_a_mode_of_an_old_picture_is_refused(master, model, page):
    page.redraw()
    version = page.version
    model.set_mode(Mode.AUTO, version=version)
    until(lambda: answered(model))
    page.redraw()
    page.press("mode to manual", version=version)
    until(lambda: model.state().request.answer is Answer.REFUSED)
    assert master.state.mode is Mode.AUTO


@pytest.mark.parametrize("label", ["Accept", "Reject", "Undo", "Override with 3w x 0.5 + 1p x 0.25"])
def test_a_press_that_names_nothing_is_not_taken_for_what_is_open(master, model, page, label):
    page.press(label)
    assert "is no longer open" in model.state().request.why
    assert not master.asked


def test_the_mode_on_the_screen_is_the_one_that_holds(master, model, page, screen):
    assert screen.buttons.mode.value == Mode.SUGGEST
    page.press("mode to auto")
    until(lambda: answered(model))
    page.redraw()
    assert master.state.mode is Mode.AUTO
    assert screen.buttons.mode.value == Mode.AUTO
    assert "the job is in auto mode" in page.status
    master.reachable = False
    screen.buttons.mode.value = "manual"  # as the page has it, once it is chosen
    page.press("mode to manual")
    until(lambda: model.state().request.answer is Answer.REFUSED)
    page.draw()
    assert screen.buttons.mode.value == Mode.AUTO


def test_a_tapped_plan_sets_the_sliders(page, screen):
    fastest = b.front().candidates[-1]
    page.open(PLANS)
    page.draw()
    page.tap("front", fastest.cost)
    assert screen.sliders.plan == b.BETTER_PLAN, "it lies beyond what is drawn at first"
    page.click("Show all plans")
    page.draw()
    page.tap("front", fastest.cost)
    assert screen.sliders.plan == fastest.plan


def test_the_cross_lies_where_the_plan_of_the_sliders_does(page, screen):
    page.open(PLANS)
    drawn(page)
    candidate = screen.sliders.consequence.candidate
    assert page.crosses("front") == [candidate.cost]
    assert page.crosses("curve") == [candidate.plan.worker.count]
    screen.chart_grid.axis.value = "ps_cpu"
    page.draw()
    assert page.crosses("curve") == [candidate.plan.ps.cpu]


@pytest.mark.parametrize(
    ("opened", "names"),
    [
        ("", ()), ("Why?", ()), ("Plans", ("curve", "front")), ("Memory", ("memory",)),
        ("Nodes", ("workers", "breakdown", "stragglers")),
        ("Rows", ("shards", "rounds")), ("Staleness", ("staleness", "distance", "batches", "consumed")),
        ("Logs", ()),
    ],
)  # fmt: skip
def test_a_chart_that_is_not_shown_is_not_updated(page, screen, monkeypatch, opened, names):
    updated = []
    for name in screen.tabs.names:
        page.open(name)
        page.draw()
    screen.tabs.model.active = None
    for name, figure in screen.chart_grid.figures.items():
        monkeypatch.setattr(figure, "update", lambda *_, name=name: updated.append(name))
    if opened:
        page.open(opened)
    for _ in range(FIT_EVERY):
        page.draw()
    assert set(updated) == {"throughput", *names}


def test_charts_of_the_fit_are_drawn_every_few_ticks_and_at_once_when_something_happened(
    master, model, page, screen, monkeypatch
):
    updated = []
    page.open(PLANS)
    page.draw()
    for name, figure in screen.chart_grid.figures.items():
        monkeypatch.setattr(figure, "update", lambda *_, name=name: updated.append(name))
    for _ in range(4 * FIT_EVERY):
        page.draw()
    assert [updated.count(name) for name in ("front", "curve", "throughput")] == [4, 4, 4 * FIT_EVERY]
    updated.clear()
    master.step("p2", ProposalStatus.REJECTED)
    model.fetch()
    page.draw()
    assert "front" in updated
    updated.clear()
    screen.chart_grid.axis.value = "ps_cpu"
    page.draw()
    assert "curve" in updated


def test_an_unreachable_master_is_told_by_the_sliders_and_asked_again(master, page, screen):
    drawn(page)
    master.reachable = False
    page.move(Axis.WORKERS, "1")
    page.draw()
    until(lambda: screen.sliders.consequence.error)
    page.draw()
    assert "does not answer" in page.text
    master.reachable = True
    page.redraw()
    drawn(page)
    assert "samples/s" in page.text


def test_what_could_not_be_weighed_is_asked_again_with_the_next_picture_only(master, page, screen):
    drawn(page)
    master.reachable = False
    page.move(Axis.WORKERS, "1")
    page.draw()
    until(lambda: screen.sliders.consequence.error)
    master.reachable, n = True, len(master.weighed)
    page.draw()  # the error's own drawing
    assert len(master.weighed) == n
    page.redraw()
    drawn(page)
    assert len(master.weighed) == n + 1


def test_an_ended_job_is_not_asked_and_takes_no_move(master):
    master.state = b.snapshot(phase=JobPhase.SUCCEEDED)
    screen = PlayedPage(model_of(master)).screen
    assert not master.weighed
    assert all(knob.fixed for knob in screen.sliders.knobs.values())
    assert screen.sliders.send.disabled
    assert screen.buttons.undo.disabled


@pytest.mark.more
def test_a_screen_that_is_gone_is_freed_and_a_view_that_nobody_sees_is_not_polled(master, page):
    poller = Watched()
    view = LiveView(JobHandle("quick-start", master, user="ada"), poller)
    gone = weakref.ref(seen_and_closed(view, page.screen.stage))
    assert view not in poller.watched
    until(lambda: gc.collect() >= 0 and gone() is None)
    view.screen_on(page.screen.stage)
    assert view in poller.watched


class Watched(Poller):
    """A poller that polls nothing, and knows what it should."""

    def __init__(self) -> None:
        super().__init__()
        self.watched = weakref.WeakSet()

    def watch(self, view) -> None:
        self.watched.add(view)

    def forget(self, view) -> None:
        self.watched.discard(view)


def seen_and_closed(view, stage):
    """Return a screen of a view that was shown, and is not any more."""
    screen = view.screen_on(stage)
    root = screen.layout.get_root()
    until(lambda: screen.sliders.consequence.weighed is not None)
    _cleanup_panel(root.ref["id"])  # as Panel does when a cell's output is cleared
    view.take_off(screen)
    return screen


def test_the_output_of_a_cell_that_is_gone_is_told_once(model):
    closed = []
    screen = Screen(model, closed.append)
    layout = screen.stage.notebook_layout()
    layout.get_root()
    (ref,) = layout._models
    comm = SimpleNamespace(_comm=object(), send=lambda *_, **__: None)
    layout._comms[ref] = (comm, comm)
    screen.flush()
    assert not closed
    layout._comms.clear()  # as Panel does when its page says that the output was cleared
    screen.flush()
    screen.flush()
    assert closed == [screen]


def test_a_screen_of_somebody_who_may_not_act_has_no_control_that_sends_anything(model):
    """The buttons are absent: what is not in a document can be neither pressed nor set by a message."""
    page = PlayedPage(model, can_act=False)
    page.redraw()
    root = page.screen.layout.get_root()
    told = {model.label for model in root.select({"type": Button})}
    sends = ("Accept", "Do it", "Try it", "Not now", "Reject", "Undo", "Override", "This is")
    assert not any(label.startswith(sends) for label in told)
    assert any(label.startswith("Back to the") for label in told), "what if is for everybody"
    assert not [*root.select({"type": Select, "title": "Who decides"})]
    assert not [*root.select({"type": TextInput})]


def test_a_screen_of_somebody_who_may_act_has_them(screen):
    root = screen.layout.get_root()
    told = {model.label for model in root.select({"type": Button})}
    assert {"Do it (p2)", "Not now (p2)", "Something else…"} <= told
    assert [*root.select({"type": Select})].count(screen.buttons.mode) == 1
    assert {field.title for field in root.select({"type": TextInput})} == {"Reason", "pressed"}


@pytest.fixture
def acting(master, page, screen):
    """Let an action against a straggler wait beside the proposal."""
    master.state = b.snapshot(mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
    page.redraw()
    return screen


def test_without_an_action_its_card_takes_no_room(page, screen):
    assert not screen.action.accept.visible
    assert not screen.action.reject.visible
    assert "Action" not in page.text


def test_an_open_action_has_a_card_and_buttons_of_its_own(acting, page):
    assert "Action m1: restart worker-1" in page.text
    assert "trains about 12 % faster" in page.text
    assert "the start of another worker" in page.text
    assert "worker-1 is slow: it works 24.0 ms" in page.text
    assert "Action m1 (restart worker-1) waits for your decision." in page.status
    assert (acting.action.accept.label, acting.action.reject.label) == ("Accept m1", "Reject m1")
    assert acting.action.accept.tags == ["accept m1"]
    assert (acting.buttons.accept.label, acting.buttons.reject.label) == ("Do it (p2)", "Not now (p2)")


@pytest.mark.more
@pytest.mark.parametrize(
    ("verb", "status"), [("Accept", "accepted, not in effect yet"), ("Reject", "rejected")]
)
def test_an_answer_to_an_action_is_sent_with_the_reason_and_told(master, model, acting, verb, status, page):
    page.field("Reason").value = "so be it"
    page.press(f"{verb} m1")
    until(lambda: answered(model))
    page.redraw()
    (made,) = master.asked
    assert (made.proposal, made.why, made.verdict) == ("m1", "so be it", Verdict(verb.lower()))
    assert f"Action m1 as {made.id}: {status}." in page.status
    assert f"({status})" in page.text
    assert not acting.action.accept.visible
    assert acting.buttons.accept.label == "Do it (p2)", "the proposal waits on"


def test_an_action_of_a_stale_view_or_of_an_ended_job_cannot_be_answered(master, acting, page):
    master.state = b.snapshot(mitigations=(b.mitigation(),), phase=JobPhase.SUCCEEDED)
    page.redraw()
    assert "Action m1" not in page.text
    assert acting.action.accept.disabled
    assert "waits for your decision" not in page.status.replace("Proposal p2 (improvement) waits", "")


def test_undo_of_an_action_says_what_it_does(master, model, page, screen):
    JobHandle("quick-start", master, user="ada").decide(ordered(BackupWorkers(1)))
    page.redraw()
    assert screen.buttons.undo.label == "Undo d2"
    assert "Undo d2 (mitigate go on without the 1 slowest worker" in page.text
