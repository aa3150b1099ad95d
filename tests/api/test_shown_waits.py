"""Calls that take long show what they wait for, whoever made them."""

from __future__ import annotations

import threading

import pytest
from support.jobs.cluster_double import Link
from support.waiting import until

from dlrover_nb.api.job import Job
from dlrover_nb.api.views import shown_waits as waiting
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.basics.waits import is_heard, tell, until_ready
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.widgets.live.browser.poller import Poller


class Drawn:
    """A line that keeps what it showed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_open, self.n_closed = False, 0

    def show(self, text: str, waited_s: float) -> None:
        assert waited_s > 0
        self.texts.append(text)
        self.is_open = True

    def close(self) -> None:
        self.is_open, self.n_closed = False, self.n_closed + 1

    def has(self, text: str) -> bool:
        return any(text in shown for shown in self.texts)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Drawn:
    monkeypatch.setattr(waiting, "REDRAW_S", 0.01)
    return Drawn()


def test_a_call_shows_what_it_waits_for_until_it_ends(drawn: Drawn) -> None:
    with shown_waits("the cluster", lambda: drawn):
        until(lambda: drawn.has("Waiting for the cluster ("))
        tell("first steps")
        until(lambda: drawn.has("Waiting for first steps"))
        assert drawn.is_open
    assert not drawn.is_open
    assert not is_heard()
    assert "wait-line" not in {thread.name for thread in threading.enumerate()}


def test_an_inner_call_tells_the_outer_line(drawn: Drawn) -> None:
    with shown_waits("the answer to submit", lambda: drawn), shown_waits("the cluster", pytest.fail):
        until(lambda: drawn.has("Waiting for the cluster"))


def test_the_line_makes_way_for_what_draws_itself(drawn: Drawn) -> None:
    with shown_waits("the cluster", lambda: drawn):
        until(lambda: drawn.is_open)
        tell("")
        until(lambda: not drawn.is_open)


def test_a_call_that_fails_takes_its_line_away(drawn: Drawn) -> None:
    @shown_waits("the cluster", lambda: drawn)
    def interrupted() -> None:
        until(lambda: drawn.is_open)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert not drawn.is_open


def test_a_reader_that_is_gone_does_not_end_the_call(drawn: Drawn, monkeypatch: pytest.MonkeyPatch) -> None:
    has_failed = threading.Event()

    def fail(*_: object) -> None:
        has_failed.set()
        raise BrokenPipeError

    monkeypatch.setattr(drawn, "show", fail)
    with shown_waits("the cluster", lambda: drawn):
        assert until(has_failed.is_set)


def test_a_program_prints_nothing_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    with shown_waits("the cluster"):
        assert not is_heard()
    assert capsys.readouterr() == ("", "")


def test_a_wait_for_a_job_shows_its_progress(drawn: Drawn) -> None:
    link = Link(JobSpec("ctr"))
    job = Job(JobHandle("ctr", link, user="ada"), Poller())

    def go_on() -> None:
        if drawn.has("the end of ctr: training, 40.0 % of 100,000 samples"):
            link.end(JobPhase.SUCCEEDED)

    link.on_snapshot = go_on
    with shown_waits("the answer to wait", lambda: drawn):
        assert job.wait().phase is JobPhase.SUCCEEDED


def test_a_program_that_serves_shows_no_waits_from_then_on(drawn: Drawn) -> None:
    with shown_waits("the answer to server", lambda: drawn), until_ready() as ready:
        tell("the dashboard to start")
        until(lambda: drawn.has("Waiting for the dashboard to start"))
        ready()
        until(lambda: not drawn.is_open)
        tell("Ray to answer")
        with shown_waits("the jobs", pytest.fail):
            tell("the masters")
        n_shown, n_closed = len(drawn.texts), drawn.n_closed
        until(lambda: drawn.n_closed > n_closed + 3)  # so often it was drawn anew, with nothing
        assert len(drawn.texts) == n_shown
    assert not any("Ray" in text or "jobs" in text or "masters" in text for text in drawn.texts)


def test_a_block_that_becomes_ready_without_a_line_is_no_fault() -> None:
    with until_ready() as ready:
        tell("Ray to load")
        ready()
    assert not is_heard()
