"""What was done against stragglers is taken back, where something can be."""

from __future__ import annotations

import pytest
from support.plans.slow_world import SIZES, SlowJob, end_all, plan_of, scales, slow_job

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions.actions import AdjustRates, BackupWorkers, KillRestart, SetSize
from dlrover_nb.core.structs.decisions.decisions import Verdict, version_of
from dlrover_nb.core.structs.job.solution_names import SolutionName
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.events import Ticked

# undo


@pytest.mark.more
def test_sizes_can_be_undone_and_redone(words):
    job = SlowJob()
    job.run(40)
    job.order(SIZES)
    job.end()
    assert version_of(job.view.undo) == "d1"
    assert job.view.undo.words == words
    job.undo()
    job.end()
    assert job.sizes == dict.fromkeys(job.workers, 512)
    assert job.view.undo.action.adjust == SIZES
    job.undo()
    job.end()
    assert job.sizes == dict(SIZES.sizes)
    assert version_of(job.view.undo) == "d3"
    assert [status for _, status in job.statuses] == ["applied"] * 3
    job.check_replay()


@pytest.mark.parametrize(
    ("action", "sync", "back"),
    [
        (BackupWorkers(1), Sync.BSP, BackupWorkers(0)),
        (
            AdjustRates((("worker-0", 0.5), ("worker-1", 1.0), ("worker-2", 1.0), ("worker-3", 1.0))),
            Sync.ASP,
            AdjustRates(tuple((f"worker-{i}", 1.0) for i in range(4))),
        ),
        (
            SetSize("worker-1", Role.WORKER, 3.0, 4000),
            Sync.ASP,
            SetSize("worker-1", Role.WORKER, plan_of().worker.cpu, plan_of().worker.memory_mib),
        ),
    ],
)
def test_backups_rates_and_sizes_of_nodes_can_be_undone(action, sync, back):
    job = SlowJob(sync=sync)
    job.run(5)
    job.order(action)
    job.end()
    assert job.view.undo.action.action == back
    job.undo()
    job.end()
    assert job.view.undo.action.action == action


def test_an_undo_must_lead_back(error_words):
    job = SlowJob()
    job.run(5)
    job.order(BackupWorkers(2))
    job.end()
    with error_words(InvalidValueError):
        job.order(BackupWorkers(1), undoes="d1")


def test_a_restart_leaves_nothing_to_undo_and_the_change_before_it_stays_the_latest():
    job = SlowJob()
    job.run(5)
    job.order(BackupWorkers(1))
    job.end()
    job.order(KillRestart("worker-2", Role.WORKER))
    job.end()
    assert version_of(job.view.undo) == "d1"


def test_an_action_that_failed_leaves_nothing_to_undo(error_words):
    job = SlowJob()
    job.run(5)
    job.order(BackupWorkers(1))
    job.end("a worker has exited")
    assert job.view.undo is None
    job.order(BackupWorkers(2), seen="d0")
    with error_words(StaleDecisionError):
        job.decide(Verdict.MODE, mode=Mode.AUTO, seen="d0")


def test_sizes_of_a_worker_that_has_left_cannot_be_set_back():
    job = SlowJob()
    job.run(5)
    job.order(SIZES)
    job.end()
    job.replace_node("worker-2", "worker-4")
    assert job.view.undo is None


@pytest.mark.more
def test_what_auto_mode_did_and_a_user_undid_is_not_done_again_at_once():
    job = slow_job(sync=Sync.BSP, seconds=20, mode=Mode.AUTO, stragglers=SolutionName.LB_BSP)
    job.end()
    job.undo()
    job.end()
    job.run(100)
    assert [status for _, status in job.statuses] == ["applied", "applied"]
    job.undo()
    job.end()
    done = end_all(job, 100)
    assert len(job.statuses) == 3 + len(done)


@pytest.mark.more
def test_times_without_reports_change_nothing():
    job = slow_job()
    job.at_s += 500.0
    job.tell(Ticked(job.at_s))
    assert job.view.stragglers == ()
    assert job.statuses == [("restart worker-2", "expired")]


@pytest.mark.more
def test_a_new_plan_of_a_user_is_not_hindered_by_actions():
    job = slow_job(mode=Mode.AUTO)
    assert scales(job.decide(Verdict.SCALE, plan=plan_of(3))) == [plan_of(3)]
