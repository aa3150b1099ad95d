import gc
import threading
import weakref

import pytest
from support.jobs import builders as b
from support.jobs.masters import Master
from support.waiting import LIMIT_S, until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.widgets.jobs.review_card import Answer
from dlrover_nb.widgets.live.browser.cell_outputs import Cell
from dlrover_nb.widgets.live.browser.poller import Poller
from dlrover_nb.widgets.live.job_view_model import JobViewModel
from dlrover_nb.widgets.live.live_view import LiveView


class Changes:
    """Counts calls, and lets a test wait for a state."""

    def __init__(self) -> None:
        self.happened = threading.Condition()

    def __call__(self) -> None:
        with self.happened:
            self.happened.notify_all()

    def until(self, predicate) -> None:
        with self.happened:
            assert self.happened.wait_for(predicate, timeout=LIMIT_S)


@pytest.fixture
def master() -> Master:
    return Master()


def feed_of(master: Master, **options):
    changes = Changes()
    return JobViewModel(JobHandle("quick-start", master, user="ada"), changes, **options), changes


def answer_of(feed: JobViewModel):
    asked = feed.state().request
    return asked and asked.answer


def test_accept_sends_the_proposal_that_the_user_saw(master):
    feed, changes = feed_of(master)
    feed.accept("p2", "looks right")
    changes.until(lambda: feed.state().snapshot.proposals[-1].status == ProposalStatus.ACCEPTED)
    assert answer_of(feed) is Answer.TAKEN
    (decision,) = master.asked
    assert (decision.proposal, decision.by, decision.why) == ("p2", "ada", "looks right")


def test_accepting_what_was_superseded_is_refused_with_the_story(master):
    feed, changes = feed_of(master)
    master.step("p2", ProposalStatus.SUPERSEDED)
    feed.accept("p2")
    changes.until(lambda: answer_of(feed) is Answer.REFUSED)
    assert "superseded by p3" in feed.state().request.why
    assert not master.asked


def test_a_double_click_asks_once(master):
    feed, changes = feed_of(master)
    with master.lock:  # the master is slow
        feed.accept("p2")
        feed.accept("p2")
    changes.until(lambda: answer_of(feed) is not Answer.ASKED)
    assert len(master.asked) == 1


def test_override_sends_the_plan_of_the_fields(master):
    feed, changes = feed_of(master)
    feed.override("p2", b.plan(3, 1))
    changes.until(lambda: answer_of(feed) is Answer.TAKEN)
    assert master.asked[0].verdict is Verdict.OVERRIDE
    assert master.asked[0].plan == b.plan(3, 1)


def test_an_unreachable_master_is_told_and_recovers(master, words):
    now = [100.0]
    feed, _ = feed_of(master, monotonic=lambda: now[0])
    master.reachable = False
    now[0] += 14
    feed.fetch()
    assert feed.state().link.badge == words
    master.reachable = True
    master.pass_time()
    feed.fetch()
    assert feed.state().link.badge == ""


def test_new_telemetry_is_appended_by_cursor(master):
    feed, _ = feed_of(master)
    n = len(feed.state().series.job["at_s"])
    master.pass_time(3)
    feed.fetch()
    feed.fetch()
    assert len(feed.state().series.job["at_s"]) == n + 3


def pollers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "dlrover-poller"}


def test_poller_refreshes_a_view_and_lets_go_of_it():
    polled = threading.Event()

    class View:
        def poll(self) -> None:
            polled.set()

        def tick(self) -> None:
            pass

        def keep(self) -> None:
            pass

    others = pollers()
    poller, view = Poller(0.01), View()
    poller.watch(view)
    assert polled.wait(LIMIT_S)
    assert pollers() - others, "one of its own, whichever of the others end meanwhile"
    gone = weakref.ref(view)
    del view
    until(lambda: gc.collect() >= 0 and pollers() <= others, what="the end of the thread")
    assert gone() is None


def test_a_hanging_master_delays_its_own_view_only():
    release, other_polled, ticked = threading.Event(), threading.Event(), threading.Event()

    class Hanging:
        def poll(self) -> None:
            release.wait(LIMIT_S)

        def tick(self) -> None:
            ticked.set()

        def keep(self) -> None:
            pass

    class Quick:
        def poll(self) -> None:
            other_polled.set()

        def tick(self) -> None:
            pass

        def keep(self) -> None:
            pass

    poller, hanging, quick = Poller(0.01), Hanging(), Quick()
    poller.watch(hanging)
    poller.watch(quick)
    try:
        assert other_polled.wait(LIMIT_S)
        assert ticked.wait(LIMIT_S)
    finally:
        release.set()


def test_a_refresh_polls_every_view_at_once_and_a_closed_poller_polls_none():
    class View:
        n_poll = n_kept = 0

        def poll(self) -> None:
            self.n_poll += 1

        def tick(self) -> None:
            pass

        def keep(self) -> None:
            self.n_kept = self.n_poll

    poller, view = Poller(60), View()
    poller.watch(view)
    until(lambda: view.n_poll, what="the first round's poll")
    before = view.n_poll
    poller.refresh()
    assert view.n_kept == view.n_poll > before
    poller.close()
    before = view.n_poll
    poller.refresh()
    assert view.n_poll == before


def test_an_ended_job_is_shown_as_it_ended_and_asked_no_more(master):
    closed = Poller()
    closed.close()  # this test alone polls
    view = LiveView(JobHandle("quick-start", master), closed)
    master.state = b.snapshot(phase=JobPhase.SUCCEEDED)
    view.poll()
    master.reachable = False
    view.poll()
    assert "Job quick-start: succeeded" in view._repr_mimebundle_()["text/plain"]
    assert not view.view_model.state().link.badge


def test_saved_form_of_a_live_view_is_static_and_complete(master):
    bundle = LiveView(JobHandle("quick-start", master), Poller())._repr_mimebundle_()
    assert "Job quick-start: training" in bundle["text/plain"]
    assert bundle["text/html"].count("<svg") >= 4
    assert "<script" not in bundle["text/html"]


def test_a_static_copy_says_first_that_it_does_not_move(master):
    bundle = LiveView(JobHandle("quick-start", master), Poller())._repr_mimebundle_()
    assert bundle["text/plain"].startswith("This is the state as last seen; it does not move.")
    assert bundle["text/html"].index("as last seen") < bundle["text/html"].index("<svg")


class Page:
    """What a notebook shows, by display id."""

    def __init__(self) -> None:
        self.outputs: dict[str, dict[str, str]] = {}

    def display(self, data: object, *, raw: bool = False, display_id: str = "") -> None:
        if raw:
            assert isinstance(data, dict)
            self.outputs[display_id] = data

    @property
    def kinds(self) -> set[str]:
        return {kind for data in self.outputs.values() for kind in data}

    @property
    def text(self) -> str:
        return "\n".join(data.get("text/plain", "") for data in self.outputs.values())


@pytest.fixture
def page(monkeypatch) -> Page:
    page = Page()
    monkeypatch.setattr("dlrover_nb.widgets.live.browser.cell_outputs.can_show_live", lambda: True)
    monkeypatch.setattr(
        "dlrover_nb.widgets.live.browser.scripts._published", lambda: ("<style></style>", "run()")
    )
    for where in ("IPython.display", "dlrover_nb.widgets.live.browser.scripts"):
        monkeypatch.setattr(f"{where}.display", page.display)
        monkeypatch.setattr(f"{where}.update_display", page.display)
    return page


def test_a_last_look_leaves_the_newest_state_and_no_scripts_in_the_cell(page):
    state = {"phase": JobPhase.TRAINING}
    cell = Cell(lambda: {"text/plain": f"job {state['phase']}"})
    cell.display(object)
    assert "application/javascript" in page.kinds
    state["phase"] = JobPhase.RESCALING
    cell.renew(is_last=False)
    assert "job training" in page.text  # it is renewed now and then only
    cell.keep()
    assert "job rescaling" in page.text
    assert "application/javascript" not in page.kinds
