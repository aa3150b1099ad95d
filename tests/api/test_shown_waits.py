"""Calls that take long show what they wait for, whoever made them."""

from __future__ import annotations

import threading

import pytest
from support.jobs.cluster_double import Link
from support.waiting import until

from dlrover_nb.api.job import Job
from dlrover_nb.api.views import shown_waits as waiting
from dlrover_nb.api.views.shown_waits import shown_waits
from dlrover_nb.core.basics.waits import is_heard, tell
from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.widgets.live.browser.poller import Poller


class Drawn:
    """A line that keeps what it showed."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_open = False

    def show(self, text: str, waited_s: float) -> None:
        assert waited_s > 0
        self.texts.append(text)
        self.is_open = True

    def close(self) -> None:
        self.is_open = False

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
        if drawn.has("the end of ctr: training, 40.0% of 100,000 samples"):
            link.end(JobPhase.SUCCEEDED)

    link.on_snapshot = go_on
    with shown_waits("the answer to wait", lambda: drawn):
        assert job.wait().phase is JobPhase.SUCCEEDED
