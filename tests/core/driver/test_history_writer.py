"""What a job leaves behind never stands in its way."""

from __future__ import annotations

import logging

import pytest

from dlrover_nb.core.driver.history_writer import HistoryWriter, examples
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.events import PhaseChanged, Remember
from dlrover_nb.core.structs.job import JobPhase, JobSpec
from dlrover_nb.core.structs.past import FitSummary, JobTraits, SeriesRow

SPEC = JobSpec("clicks", owner="ada")
TRAITS = JobTraits("wide_deep", 8, 136, 1000, 4000, 512, 10_000)
DAY_S = 86_400.0


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'history.db'}"


def _row(at_s, speed=10.0):
    return Remember(at_s, SeriesRow(at_s, 60.0, speed, 1, 1, 5.0, 5.0))


def test_all_that_a_job_is_told_to_remember_is_in_the_history(url):
    memory = HistoryWriter("clicks", url)
    fit = FitSummary(3.0, (), 0.1, 1, 5, 4000.0, 136.0, 512)
    for order in (Remember(1.0, SPEC), Remember(1.0, TRAITS), _row(2.0), Remember(3.0, fit)):
        memory.remember(order)
    memory.remember(Remember(4.0, PhaseChanged(4.0, JobPhase.SUCCEEDED)))
    memory.close()
    (past,) = examples(url)
    assert (past.traits, past.final, past.fit) == (TRAITS, SPEC.plan, fit)


def test_the_end_of_a_job_thins_what_is_old(url):
    memory = HistoryWriter("clicks", url)
    memory.remember(Remember(0.0, SPEC))
    for i in range(20):
        memory.remember(_row(60.0 * (i + 1)))
    memory.remember(Remember(8 * DAY_S, PhaseChanged(8 * DAY_S, JobPhase.TRAINING)))
    assert len(HistoryStore(url).series("clicks")) == 20
    memory.remember(Remember(8 * DAY_S, PhaseChanged(8 * DAY_S, JobPhase.STOPPED)))
    assert len(HistoryStore(url).series("clicks")) == 2


def test_record_that_cannot_be_kept_is_logged_and_the_next_one_is_kept(url, caplog):
    caplog.set_level(logging.WARNING)  # whatever tests before it wanted to hear
    memory = HistoryWriter("clicks", url)
    memory.remember(Remember(0.0, SPEC))
    memory.remember(_row(60.0, speed=float("nan")))
    memory.remember(_row(120.0))
    assert [row.at_s for row in HistoryStore(url).series("clicks")] == [120.0]
    assert len(caplog.records) == 1


@pytest.mark.parametrize("bad", ["nonsense", "mysql://host/name", "sqlite:////proc/nowhere/history.db"])
def test_history_that_cannot_be_opened_is_logged_once(bad, caplog):
    caplog.set_level(logging.WARNING)
    memory = HistoryWriter("clicks", bad)
    for at_s in (60.0, 120.0, 180.0):
        memory.remember(_row(at_s))
    memory.close()
    assert len(caplog.records) == 1
    assert "clicks" in caplog.text


def test_without_a_history_there_are_no_examples_and_the_log_says_why(caplog):
    assert examples("sqlite:////proc/nowhere/history.db") == ()
    assert "nothing can be learnt" in caplog.text
