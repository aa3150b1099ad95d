"""A job with a total budget, whole: it stops when that is spent, keeps what it trained, and can go on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.driver.driver_world import DriverWorld, features, plan

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.rundir.checkpoint_folder import newest_manifest
from dlrover_nb.core.rundir.job_file import read_job
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.prices import PriceTable

PER_SECOND = PriceTable(cpu_hour=3600.0, gib_hour=0.0, assumed=False)  # a core costs 1 a second
CORES = plan().total_cpu
LONG = {"prices": PER_SECOND, "mode": Mode.MANUAL, "n_epoch": 400}


def manifest_of(world: DriverWorld):
    return newest_manifest(str(world.folder / "checkpoints"))


def test_a_job_saves_and_stops_when_its_budget_is_spent_and_says_why(play):
    job = play(**LONG, budget_total=10.0)
    end = job.until_end()
    assert end.phase is JobPhase.STOPPED
    assert end.message.startswith("stopped by budget_total: 10")
    assert "USD are spent, the limit was 10" in end.message
    assert 10.0 <= end.budget.spent <= 10.0 + 10 * CORES, "a checkpoint takes seconds, no more"
    saved = manifest_of(job)
    assert 10.0 <= saved.spent <= end.budget.spent
    assert end.train.n_sample_done > 0
    assert any("the budget:" in line and "spent (8" in line for line in end.story)


def test_in_auto_mode_the_loop_goes_on_after_its_first_fit(play):
    job = play(**{**LONG, "mode": Mode.AUTO}, budget_total=1e6)
    job.until(lambda now: now.fit is not None)
    n_turn = job.n_turn
    later = job.pass_time(30.0)
    assert later.budget.samples_per_s is not None
    assert later.train.n_sample_done > 0
    assert job.n_turn - n_turn >= 30, "it answers its nodes"


def test_what_was_spent_outlasts_its_master_and_the_time_without_one_counts(play):
    job = play(**LONG, budget_total=60.0)
    job.pass_time(20.0)
    spent = job.now.budget.spent
    job.crash()
    away_s = 15.0
    job.machine.passed_s += away_s
    job.come_back()
    now = job.pass_time(3.0)
    least = spent + away_s * CORES
    assert least <= now.budget.spent <= least + 6 * CORES
    assert job.until_end().message.startswith("stopped by budget_total: 60")


def test_a_master_that_dies_when_it_has_ordered_the_stop_is_followed_by_one_that_stops(play):
    job = play(**LONG, budget_total=5.0)
    job.until(lambda now: now.budget.spent >= 4.5)
    while not job.driver._recorded.controller.ending:
        job.turn_loop()
    job.crash()
    job.come_back()
    end = job.until_end()
    assert (end.phase, end.message[:24]) == (JobPhase.STOPPED, "stopped by budget_total:")


def test_a_limit_that_is_raised_while_the_job_runs_holds_for_the_next_master_too(play):
    job = play(**LONG, budget_total=10.0)
    job.until(lambda now: now.budget.spent >= 6.0)
    job.driver.decide(Decision(Verdict.BUDGET, "ada", job.at_s, budget_total=30.0))
    assert job.now.spec.budget_total == 30.0
    job.crash()
    job.come_back()
    assert job.pass_time(2.0).budget.limit == 30.0
    end = job.until_end()
    assert end.message.startswith("stopped by budget_total: 30")
    with pytest.raises(StaleDecisionError):
        job.driver.decide(Decision(Verdict.BUDGET, "ada", job.at_s, budget_total=99.0))


def test_a_run_that_goes_on_with_the_rows_goes_on_with_what_they_have_cost(play, tmp_path):
    first = play(prices=PER_SECOND, mode=Mode.MANUAL, n_epoch=60, budget_total=10.0)
    stopped = first.until_end()
    assert stopped.phase is JobPhase.STOPPED
    source = StartFrom(str(first.folder), rows=True)
    again = {"prices": PER_SECOND, "mode": Mode.MANUAL, "n_epoch": 60, "start_from": source}
    spent = manifest_of(first).spent
    with pytest.raises(InvalidValueError, match="had spent on the rows that job"):
        DriverWorld(tmp_path / "refused", features(), **again, budget_total=spent)
    second = DriverWorld(tmp_path / "second", features(), **again, budget_total=1000.0)
    second.files, second.copies = first.files, first.copies
    second.start()
    assert read_job(second.folder).began_from.spent == spent
    assert second.pass_time(1.0).budget.spent >= spent
    assert second.now.train.n_sample_done >= stopped.train.n_sample_done - 1
    assert second.until_end().phase is JobPhase.SUCCEEDED
    second.close()
    fresh = replace(source, rows=False)
    retrained = DriverWorld(
        tmp_path / "third", features(), **{**again, "start_from": fresh}, budget_total=5.0
    )
    retrained.files, retrained.copies = first.files, first.copies
    retrained.start()
    assert retrained.pass_time(1.0).budget.spent < spent, (
        "parameters alone: all rows, and a budget of its own"
    )
    retrained.until_end()
    retrained.close()
