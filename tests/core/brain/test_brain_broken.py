"""What is to break the brain: 200 jobs at one moment, a master of an older release, a job that lies."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.waiting import until
from test_queue_of_a_cluster import brain, round_of, submit

from dlrover_nb.core.brain import planning_round
from dlrover_nb.core.connect import connect
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.offers import N_COLUMN, JobOffer
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = pytest.mark.release

SMALL = ResourcePlan(RolePlan(2, 2.0, 4096), RolePlan(1, 2.0, 4096))
LIE, SPEED = 1e6, slice(4, 6)  # rows of an offer: throughput, and its gain
OLDER = "the master of job ads is of another release of dlrover-nb"


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


@pytest.fixture
def cluster():
    made = connect("sim", machines=12, speed=600.0)
    yield made
    made.shutdown(force=True)


@pytest.mark.parametrize("n_job", [70, 200])
def test_jobs_of_one_moment_are_admitted_in_their_order_each_once_and_all_end(cluster, url, n_job):
    jobs = [submit(cluster, f"job-{i}", SMALL, n_epoch=1) for i in range(n_job)]
    one, admitted = brain(cluster, url, start_share=1.0), []

    def planned() -> int:
        found = round_of(one)
        admitted.extend(each.job for each in found.queue if each.admitted)
        places = [each.place.place for each in found.queue if each.admitted is None]
        assert sorted(places) == list(range(1, len(places) + 1))
        return len(admitted)

    assert planned() == 384 // 6  # what the cores of the cluster hold at once
    until(lambda: planned() == n_job, what=lambda: f"all of them: {len(admitted)}")
    assert admitted == [job.name for job in jobs]
    until(lambda: all(job.snapshot().phase.is_final for job in jobs), what="their ends")
    assert {job.snapshot().phase for job in jobs} == {JobPhase.SUCCEEDED}


class Changed:
    """The link to a real master, one of whose answers differs."""

    def __init__(self, link, offer):
        self._link, self._offer = link, offer

    def __getattr__(self, name):
        return getattr(self._link, name)

    def offer(self):
        return self._offer(self._link.offer())


@pytest.fixture
def training(cluster):
    for name in ("ads", "clicks"):
        cluster.submit(JobSpec(name, n_epoch=1_000_000, mode=Mode.AUTO, owner="ada"))
    return cluster


def with_offer(monkeypatch, job, offer):
    """Let the master of one job answer the brain otherwise."""
    link_of = planning_round.Rounds._link
    monkeypatch.setattr(
        planning_round.Rounds,
        "_link",
        lambda self, one: Changed(link_of(self, one), offer) if one.name == job else link_of(self, one),
    )


def test_a_master_of_an_older_release_takes_no_part_and_keeps_what_it_has(training, url, monkeypatch):
    def unknown(_offer):
        raise BackendError(OLDER)

    with_offer(monkeypatch, "ads", unknown)
    one = brain(training, url)

    def held():
        return training.job("ads").snapshot().target.total_cpu

    def apart():
        """Return a round without it, and what it held all the time: it may change its plan by itself."""
        before, made = held(), round_of(one)
        is_apart = made.shares and "another release" in dict(made.apart).get("ads", "")
        return is_apart and held() == before and (made, before)

    found, held_then = until(apart, what="a round without it")
    assert [share.job for share in found.shares] == ["clicks"]
    assert found.shares[0].meant.total_cpu <= training.capacity().total_cpu - held_then + 1e-6


def faster(offer):
    """Return an offer that claims a million times the speed and the gain of each plan."""
    if not isinstance(offer, JobOffer):
        return offer
    columns = np.frombuffer(offer.columns, "<f8").reshape(N_COLUMN, -1).copy()
    columns[SPEED] *= LIE
    return replace(offer, samples_per_s=LIE * offer.samples_per_s, columns=columns.tobytes())


def test_a_job_that_lies_about_its_speed_takes_nothing_that_another_runs_on(training, url, monkeypatch):
    with_offer(monkeypatch, "ads", faster)
    one = brain(training, url)
    for _ in range(5):
        found = until(lambda: len((made := round_of(one)).shares) == 2 and made, what="both offers")
        honest = next(share for share in found.shares if share.job == "clicks")
        assert honest.meant.total_cpu >= honest.now.total_cpu - 1e-6
        assert sum(share.meant.total_cpu for share in found.shares) <= training.capacity().total_cpu + 1e-6
