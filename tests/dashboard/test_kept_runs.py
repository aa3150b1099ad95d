"""Runs that were read last are kept while a scrubber moves, and not for longer than they may be true."""

from types import SimpleNamespace

import pytest

from dlrover_nb.core.errors import NotFoundError
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.dashboard.common.team import KEPT_S, N_KEPT, KeptRuns


class Runs:
    """Records of runs, and how often they were read."""

    def __init__(self):
        self.phase, self.read = JobPhase.SUCCEEDED, []

    def __call__(self, job, run, url):
        if job == "none":
            raise NotFoundError("no job 'none' in the history")
        self.read.append((job, run, url))
        return SimpleNamespace(run=SimpleNamespace(phase=self.phase, run=run))


@pytest.fixture
def now():
    return [0.0]


@pytest.fixture
def runs():
    return Runs()


@pytest.fixture
def kept(runs, now):
    return KeptRuns("sqlite:///x", read=runs, monotonic=lambda: now[0])


def test_a_run_is_read_once_while_a_scrubber_moves(kept, runs, now):
    for now[0] in (0.0, 1.0, KEPT_S - 1):
        assert kept.run("ads@1.000").run.run == "ads@1.000"
    assert runs.read == [("ads", "ads@1.000", "sqlite:///x")]


def test_a_run_that_may_have_been_deleted_is_read_again(kept, runs, now):
    kept.run("ads@1.000")
    now[0] = KEPT_S
    kept.run("ads@1.000")
    assert len(runs.read) == 2


def test_a_run_that_goes_on_is_read_each_time(kept, runs):
    runs.phase = JobPhase.TRAINING
    for _ in range(3):
        kept.run("ads@1.000")
    assert len(runs.read) == 3


def test_no_more_runs_are_kept_than_memory_allows(kept, runs):
    for i in range(N_KEPT + 1):
        kept.run(f"ads@{i}.000")
    kept.run("ads@0.000")
    assert [run for _, run, _ in runs.read].count("ads@0.000") == 2
    kept.run(f"ads@{N_KEPT}.000")
    assert [run for _, run, _ in runs.read].count(f"ads@{N_KEPT}.000") == 1


def test_a_run_that_is_not_there_says_so_each_time(kept):
    for _ in range(2):
        with pytest.raises(NotFoundError):
            kept.run("none@1.000")
