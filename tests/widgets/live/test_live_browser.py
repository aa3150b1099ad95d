"""The served live view in headless Chromium: what a person reads, presses and is told."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from support.browser.chromium import picture, unlocked, unnamed
from support.jobs import builders as b
from support.jobs.masters import Master
from support.waiting import until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.widgets.jobs.review_card import LOCK_S
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.live_view import LiveView

HELD = "window.held_ms = performance.now() + 10_000; performance.now = () => window.held_ms"  # held, later
BEATS = "() => Bokeh.documents.some(doc => doc.dlrover_link)"
OFF = "button => button.getRootNode().host.inert"
MEANS = "said => Bokeh.documents.some(d => [...d._all_models.values()].some(m => m.tags?.[0] === said))"

# Presses a tab, and returns the height of what stands for its page in the same turn, before any message is handled.
PRESSED = """async tab => {
  tab.click()
  await new Promise(done => setTimeout(done, 0))
  return getComputedStyle(tab.getRootNode().host, '::after').height
}"""

pytestmark = [
    pytest.mark.browser,
    pytest.mark.filterwarnings("default"),  # tornado and playwright warn of each other's event loops
    pytest.mark.more,
]


@pytest.fixture
def master() -> Master:
    return Master()


@pytest.fixture
def address(master: Master, serve) -> str:
    handle = JobHandle("quick-start", master, user="ada")
    view = LiveView(handle, Poller(), monotonic=lambda: 0.0)  # a master that a test holds is not stale
    return serve(view.panel)


def test_accept_tells_the_truth_from_asked_to_applied(master, address, page):
    page.goto(address)
    accept = page.get_by_role("button", name="Do it")
    accept.wait_for()
    status = page.get_by_role("status")
    until(lambda: "p2 (improvement) waits" in status.aria_snapshot())
    assert page.locator("canvas:visible").count() >= 1
    assert not page.get_by_label("Axis of the fitted curve").is_visible()
    page.get_by_role("button", name="Plans", exact=True).click()
    page.get_by_label("Axis of the fitted curve").wait_for()
    assert not unnamed(page.locator("body").aria_snapshot())

    unlocked(page)
    with master.lock:  # the master is slow to answer
        accept.click()
        until(lambda: "Sending: accept p2" in status.aria_snapshot())
        until(accept.is_disabled)
    until(lambda: "accepted p2; not applied yet" in status.aria_snapshot())
    master.step("p2", ProposalStatus.APPLYING)
    until(lambda: "applying" in status.aria_snapshot())
    master.step("p2", ProposalStatus.APPLIED)
    until(lambda: "applied after a pause of 2.4 s" in status.aria_snapshot())

    assert master.asked[0].proposal == "p2"
    until(lambda: not accept.is_visible())


def test_a_slider_shows_its_consequence_and_its_plan_is_sent_and_can_be_cancelled(master, address, page):
    page.goto(address)
    page.get_by_role("button", name="Something else").click()
    workers = page.get_by_role("slider", name="Workers")
    workers.wait_for()
    workers.focus()
    page.keyboard.press("ArrowRight")  # 2 to 3
    page.get_by_text("No similar plan has run yet").wait_for()
    override = page.get_by_role("button", name="Override p2 with 3w x 0.5 + 1p x 0.5")
    page.get_by_label("Reason").fill("three fit")
    unlocked(page)
    override.click()
    status = page.get_by_role("status")
    until(lambda: "chose another plan instead of p2" in status.aria_snapshot())
    (decision,) = master.asked
    assert decision.plan == b.plan(3, 1, 0.5, 0.5)
    assert decision.why == "three fit"
    assert not unnamed(page.locator("body").aria_snapshot())

    master.begin(decision.plan, decision.id)
    page.get_by_text(f"{b.NOW_PLAN.short} until now, changing to {decision.plan.short}").wait_for()
    cancel = page.get_by_role("button", name=f"Cancel {decision.id}")
    cancel.wait_for()
    unlocked(page)
    cancel.click()
    until(lambda: len(master.asked) == 2)
    assert (master.asked[1].undoes, master.asked[1].plan) == (decision.id, b.NOW_PLAN)
    page.get_by_text("changing to").wait_for(state="hidden")


@pytest.mark.release
def test_dragging_ends_with_the_consequence_of_the_last_plan(master, address, page):
    page.goto(address)
    page.get_by_role("button", name="Something else").click()
    workers = page.get_by_role("slider", name="Workers")
    workers.wait_for()
    with master.lock:  # the master is slow to answer
        for index in ("0", "3", "2", "0"):
            workers.fill(index)
    page.get_by_text("workers 1 x 0.5 cpu, 1024 MiB; ps 1 x 0.5 cpu").wait_for()
    page.get_by_role("button", name="Back to the proposal").click()
    page.get_by_role("button", name="This is the plan of p2").wait_for()


def test_a_click_meant_for_one_proposal_never_answers_the_next_and_a_reason_is_kept_once(
    master, address, page
):
    page.add_init_script(HELD)
    page.goto(address)
    accept = page.get_by_role("button", name="Do it (p2)")
    accept.wait_for()
    page.wait_for_function(
        MEANS, arg="accept p2"
    )  # on a slow machine the page comes before its first drawing
    page.wait_for_function(BEATS)
    page.evaluate("ms => { window.held_ms += ms }", 1000 * LOCK_S)
    status = page.get_by_role("status")
    with master.lock:  # p2 is replaced behind the page's back
        master.state = replace(
            master.state, proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal("p3"))
        )
        accept.click()
    until(lambda: "Could not accept p2: proposal p2 is no longer open" in status.aria_snapshot())
    page.get_by_role("button", name="Something else").click()
    page.get_by_label("Reason").fill("not tonight")
    reject = page.get_by_role("button", name="Not now (p3)")
    reject.click()  # at the very moment at which the button has changed
    until(lambda: "Could not reject p3: the button changed" in status.aria_snapshot())
    assert not master.asked
    page.evaluate("ms => { window.held_ms += ms }", 1000 * LOCK_S)
    reject.click()
    until(lambda: "rejected p3." in status.aria_snapshot())
    until(lambda: page.get_by_label("Reason").input_value() == "")
    assert [(d.verdict, d.why) for d in master.asked] == [(Verdict.REJECT, "not tonight")]


def test_why_details_come_when_asked_for(master, address, page):
    page.goto(address)
    page.get_by_role("button", name="Why?").click()
    page.get_by_text("Why proposal p2 of quick-start").wait_for()
    page.get_by_role("button", name="Memory", exact=True).click()
    page.get_by_text("Why proposal p2 of quick-start").wait_for(state="hidden")


def test_the_place_of_a_page_is_seen_before_the_server_has_answered_a_press(address, page):
    page.goto(address)
    why = page.get_by_role("button", name="Why?", exact=True)
    why.wait_for()
    unlocked(page)
    assert why.evaluate(PRESSED) == "220px"
    page.get_by_text("What one more change would bring").or_(page.get_by_text("What is it?")).first.wait_for()
    until(lambda: page.locator(".dlrover-opens").count() == 0)
    assert why.evaluate(PRESSED) == "auto"
    page.get_by_role("button", name="Plans", exact=True).click()
    page.get_by_label("Axis of the fitted curve").wait_for()
    until(lambda: page.locator(".dlrover-opens").count() == 0)


def test_an_action_against_a_straggler_is_answered_by_keys_beside_the_proposal(master, address, page):
    page.goto(address)
    page.get_by_role("button", name="Do it (p2)").wait_for()
    assert not page.get_by_role("button", name="Accept action").is_visible()
    master.state = replace(master.state, mitigations=(b.mitigation(),), stragglers=(b.straggler(),))
    accept = page.get_by_role("button", name="Accept m1")
    accept.wait_for()
    page.get_by_text("Action m1: restart worker-1").wait_for()
    page.get_by_text("worker-1 is slow: it works 24.0 ms").wait_for()
    status = page.get_by_role("status")
    until(lambda: "Action m1 (restart worker-1) waits for your decision" in status.aria_snapshot())
    assert page.get_by_role("button", name="Do it (p2)").is_visible()
    assert not unnamed(page.locator("body").aria_snapshot())
    page.evaluate(HELD)  # from here on the page's clock stands, after the button has stood for long enough
    accept.focus()
    page.keyboard.press("Enter")
    until(lambda: "Action m1 as d2: accepted, not in effect yet" in status.aria_snapshot())
    assert [each.proposal for each in master.asked] == ["m1"]
    accept.wait_for(state="hidden")
    assert page.get_by_role("button", name="Do it (p2)").is_enabled()


class Line:
    """What is between a page and its server: it can be cut, or hold back what the server says."""

    def __init__(self, page, address) -> None:
        self.is_cut = self.holds = False
        self._held, self._ends = [], None
        page.route_web_socket(re.compile(r"/ws\b"), self._connect)
        page.route(address, self._ask)

    def _connect(self, page_end) -> None:
        server_end = page_end.connect_to_server()
        self._ends = (page_end, server_end)
        server_end.on_message(
            lambda message: self._held.append(message) if self.holds else page_end.send(message)
        )

    def _ask(self, route) -> None:
        route.abort() if self.is_cut else route.continue_()

    def cut(self) -> None:
        self.is_cut = True
        for end in self._ends:
            end.close()

    def mend(self) -> None:
        self.is_cut = False

    def let_go(self) -> None:
        self.holds = False
        page_end, _ = self._ends
        for message in self._held:
            page_end.send(message)
        self._held = []


def replace_proposal(master) -> None:
    with master.lock:
        master.state = replace(
            master.state, proposals=(b.proposal("p2", status=ProposalStatus.SUPERSEDED), b.proposal("p3"))
        )


def test_a_page_that_lost_its_server_says_since_when_decides_nothing_and_comes_back(master, address, page):
    line = Line(page, address)
    page.goto(address)
    accept = page.get_by_role("button", name="Do it (p2)")
    accept.wait_for()
    page.get_by_role("button", name="Something else").click()
    page.get_by_label("Axis of the fitted curve").wait_for()
    unlocked(page)
    line.cut()
    page.get_by_text(re.compile("This view is old: it shows the state of .*\\d:\\d\\d")).wait_for()
    until(lambda: accept.evaluate(OFF), "a button that is off")
    until(lambda: page.get_by_label("Who decides").evaluate(OFF), "a choice that is off")
    assert not page.get_by_label("Axis of the fitted curve").evaluate(OFF), "to look is for all"
    picture(page, "live-old")
    replace_proposal(master)
    accept.evaluate("button => button.click()")
    line.mend()
    page.get_by_role("button", name="Do it (p3)").wait_for()
    until(lambda: not page.get_by_text("This view is old").is_visible())
    assert not master.asked


def test_a_page_that_takes_in_what_has_piled_up_is_old_until_it_is_through(master, address, page):
    line = Line(page, address)
    page.goto(address)
    accept = page.get_by_role("button", name="Do it (p2)")
    accept.wait_for()
    unlocked(page)
    line.holds = True
    replace_proposal(master)
    page.get_by_text("This view is old").wait_for()
    assert accept.evaluate(OFF)
    line.let_go()
    later = page.get_by_role("button", name="Do it (p3)")
    later.wait_for()
    until(lambda: not later.evaluate(OFF), "buttons that are on again")
    assert not page.get_by_text("This view is old").is_visible()
