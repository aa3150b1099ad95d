"""What a job leaves behind never stands in its way."""

from __future__ import annotations

import logging

import pytest

from dlrover_nb.core.driver.history_writer import HistoryWriter, examples, speed_of_last_run
from dlrover_nb.core.history import HistoryStore
from dlrover_nb.core.structs.decisions.actions import ActionChoice, KillRestart
from dlrover_nb.core.structs.decisions.decisions import Mitigation
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan
from dlrover_nb.core.structs.views.events import PhaseChanged, Remember
from dlrover_nb.core.structs.views.past_jobs import FitSummary, JobTraits, SeriesRow

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


def test_the_reason_of_an_action_is_kept_without_secrets(url):
    memory = HistoryWriter("clicks", url)
    memory.remember(Remember(1.0, SPEC))
    restart = ActionChoice.of(KillRestart("worker-0", Role.WORKER))
    why = "s3://KEY:hunter2@bucket is slow"
    memory.remember(Remember(2.0, Mitigation("m1", "clicks", restart, why, "a start", 2.0)))
    memory.close()
    (kept,) = HistoryStore(url).mitigations("clicks")
    assert kept.action == restart
    assert kept.why.endswith("@bucket is slow")
    assert "hunter2" not in repr(kept)


def test_the_end_of_a_job_thins_what_is_old(url):
    memory = HistoryWriter("clicks", url)
    memory.remember(Remember(0.0, SPEC))
    for i in range(20):
        memory.remember(_row(60.0 * (i + 1)))
    memory.remember(Remember(8 * DAY_S, PhaseChanged(8 * DAY_S, JobPhase.TRAINING)))
    assert len(HistoryStore(url).series("clicks")) == 20
    memory.remember(Remember(8 * DAY_S, PhaseChanged(8 * DAY_S, JobPhase.STOPPED)))
    assert len(HistoryStore(url).series("clicks")) == 2


@pytest.mark.parametrize("started_s", [100.0, 900.0])
def test_the_next_master_writes_to_its_own_run_though_another_one_has_a_later_date(url, started_s):
    for at_s in (500.0, started_s):  # the clock was set back, or not, before the second one
        first = HistoryWriter("clicks", url)
        first.remember(Remember(at_s, SPEC))
        first.close()
    second = HistoryWriter("clicks", url)
    second.continue_run(SPEC, started_s)
    second.remember(_row(1000.0))
    second.close()
    store = HistoryStore(url)
    rows = {run.started_at_s: len(store.series("clicks", run=run.run)) for run in store.jobs()}
    store.close()
    assert rows == {500.0: 0, started_s: 1}


def test_a_run_that_is_not_in_the_history_writes_to_no_other(url, caplog):
    caplog.set_level(logging.WARNING)
    first = HistoryWriter("clicks", url)
    first.remember(Remember(500.0, SPEC))
    first.close()
    second = HistoryWriter("clicks", url)
    second.continue_run(SPEC, 900.0)
    second.remember(_row(1000.0))
    second.close()
    assert HistoryStore(url).series("clicks") == ()
    assert "no run 'clicks@900.000'" in caplog.text


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


def test_without_a_history_there_are_no_examples_and_the_log_says_why(caplog, words):
    assert examples("sqlite:////proc/nowhere/history.db") == ()
    assert caplog.messages == words


def test_the_speed_of_the_last_run_that_succeeded_follows_the_workers(url):
    twice = JobSpec("clicks", owner="ada", plan=ResourcePlan(RolePlan(2, 0.5, 512), RolePlan(1, 0.5, 512)))
    assert speed_of_last_run(url, twice) is None
    for at_s, speed, phase in ((0.0, 40.0, JobPhase.SUCCEEDED), (DAY_S, 90.0, JobPhase.FAILED)):
        memory = HistoryWriter("clicks", url)
        memory.remember(Remember(at_s, SPEC))
        for n, each in enumerate((0.0, speed, 2 * speed)):  # a minute without training at first
            memory.remember(_row(at_s + 60.0 * (n + 1), each))
        memory.remember(Remember(at_s + 200.0, PhaseChanged(at_s + 200.0, phase)))
        memory.close()
    assert speed_of_last_run(url, twice) == pytest.approx(2 * 60.0)
    assert speed_of_last_run(url, JobSpec("clicks", owner="bob")) is None
    assert speed_of_last_run("sqlite:////proc/nowhere/history.db", twice) is None
