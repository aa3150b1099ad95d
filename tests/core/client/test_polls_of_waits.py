"""How often a wait asks a master, soon at first and never so often that it keeps the master busy; and how long."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.jobs.masters import Master
from support.virtual_time import VirtualTime, as_shipped

from dlrover_nb.core.client.handle import LEAST_POLL_S, POLL_S, POLL_SHARE, poll_s
from dlrover_nb.core.errors import AwayError
from dlrover_nb.core.structs.job.job import JobPhase

if TYPE_CHECKING:
    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


@settings(deadline=None)
@given(st.floats(0, 600))
def test_an_end_is_seen_late_by_a_share_of_the_wait_and_never_by_more_than_before(end_s: float) -> None:
    at_s, n_poll = 0.0, 0
    while at_s < end_s:
        at_s, n_poll = at_s + poll_s(at_s), n_poll + 1
    late_s = at_s - end_s
    assert late_s <= max(LEAST_POLL_S, POLL_SHARE * end_s) + 1e-9
    assert late_s <= POLL_S + 1e-9
    assert n_poll <= end_s / POLL_S + 30, "in the long run as rare as the longest pause"


class SlowMaster(Master):
    """A master on a cluster that may be away, whose job takes a while to end."""

    is_away = False

    def snapshot(self) -> JobSnapshot:
        if self.is_away:
            raise AwayError("the API server did not answer")
        return super().snapshot()

    def stop(self, by: str, why: str) -> None:
        """Take note of it."""

    def end(self) -> None:
        self.state = replace(self.state, phase=JobPhase.STOPPED, ended_at_s=self.state.at_s)


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def master() -> SlowMaster:
    return SlowMaster()


@pytest.fixture
def job(time: VirtualTime, master: SlowMaster) -> JobHandle:
    made: JobHandle = as_shipped("dlrover_nb.core.client.handle", time).JobHandle("quick-start", master)
    return made


def test_a_stop_waits_for_the_end_of_the_job(time: VirtualTime, master: SlowMaster, job: JobHandle) -> None:
    time.at(59.0, master.end)
    assert job.stop().phase is JobPhase.STOPPED


def test_a_stop_returns_a_job_that_does_not_end_after_a_minute(time: VirtualTime, job: JobHandle) -> None:
    assert job.stop().phase is JobPhase.TRAINING
    assert 60.0 <= time.now_s() < 60.0 + POLL_S


def test_a_wait_without_a_limit_gives_a_cluster_that_is_away_a_minute(
    time: VirtualTime, master: SlowMaster, job: JobHandle, error_words
) -> None:
    master.is_away = True
    time.at(59.0, lambda: setattr(master, "is_away", False))
    time.at(59.0, master.end)
    assert job.wait().phase is JobPhase.STOPPED
    master.is_away, began_s = True, time.now_s()
    with error_words(AwayError):
        job.wait()
    assert 60.0 <= time.now_s() - began_s < 60.0 + POLL_S
