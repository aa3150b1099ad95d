"""A node of a real job is slowed, the job's controller finds it, and what it proposes or does helps.

The windows are seconds. Delays are so long beside an iteration that a busy machine adds nothing of their size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, n_process, plan, succeeded

from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.decisions.decisions import Decision, ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.testing.faults import Persistent, slow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.decisions.decisions import Mitigation
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

pytestmark = pytest.mark.more

DELAY_S = 1.0
FOREVER = 100_000


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(workers: int, ps: int, **changes: object) -> Job:
        told = {"plan": plan(workers, ps, worker_cpu=0.3, ps_cpu=0.2), "policy": "fixed-plan"}
        told |= {"straggler_window_s": 5.0, "n_epoch": FOREVER} | changes
        jobs.append(job := Job(tmp_path, make_features(DataSpec(), ModelSpec()), **told))
        job.driver.start()
        job.until(lambda now: now.train.n_sample_done and n_process(now) == workers + ps)
        return job

    yield begin
    for job in jobs:
        job.close()


def decide(job: Job, verdict: Verdict, **about: object) -> Decision:
    return job.driver.decide(Decision(verdict, "ada", job.now.at_s, **about))  # type: ignore[arg-type]


def ended(now: JobSnapshot, kind: str, node: str) -> Mitigation | None:
    """Return the action of a kind on a node that is in effect."""
    for each in now.mitigations:
        action = each.action.restart if kind == "restart" else each.action.move
        if each.status is ProposalStatus.APPLIED and action is not None and action.node == node:
            return each
    return None


def finish(job: Job) -> JobSnapshot:
    """Train no more rows, and see that all counts hold."""
    counts = job.now.train
    job.driver.stop("ada", "seen enough")
    end = job.until_end()
    assert end.train.n_sample_done >= counts.n_sample_done
    assert end.train.todo + end.train.doing + end.train.done == end.train.total
    return end


@pytest.mark.release
def test_a_proposed_action_is_accepted_done_undone_and_every_row_is_trained_once(tmp_path: Path) -> None:
    features = make_features(DataSpec(), ModelSpec())
    job = Job(
        tmp_path,
        features,
        plan=plan(3, 1, worker_cpu=0.3),
        policy="fixed-plan",
        mode=Mode.SUGGEST,
        sync=Sync.BSP,
        straggler_window_s=5.0,
        n_epoch=6,  # a fast job must not end before its slow worker is found
    )
    job.driver.start()
    try:
        job.until(lambda now: now.train.n_sample_done and n_process(now) == 4)
        with slow(job.driver, "worker-1", Persistent(DELAY_S)):
            now = job.until(lambda now: now.open_mitigation)
            found = now.open_mitigation
            assert found is not None
            assert found.why
            assert any(each.node == "worker-1" for each in now.stragglers)
            decision = decide(job, Verdict.ACCEPT, proposal=found.id)
            done = (ProposalStatus.APPLIED, ProposalStatus.FAILED)
            now = job.until(lambda now: any(m.decision and m.status in done for m in now.mitigations))
        (ran,) = [each for each in now.mitigations if each.id == found.id]
        assert (ran.status, ran.decision) == (ProposalStatus.APPLIED, decision.id), ran
        assert now.decisions[-1].proposal == found.id
        if now.undo is not None:  # of sizes; a replaced worker stays replaced
            decide(job, Verdict.MITIGATE, action=now.undo.action, undoes=now.undo.undoes)
        succeeded(job)
    finally:
        job.driver.close()


def test_auto_mode_replaces_the_worker_that_stays_slow_and_the_job_is_fast_again(
    start: Callable[..., Job],
) -> None:
    job = start(3, 1, mode=Mode.AUTO, sync=Sync.ASP)
    with slow(job.driver, "worker-1", Persistent(DELAY_S)):
        job.until(lambda now: ended(now, "restart", "worker-1"))
    now = job.until(lambda now: now.running is not None and not now.stragglers)
    names = {node.id for node in now.nodes if node.role is Role.WORKER}
    assert "worker-1" not in names
    assert len(names) == 3
    assert job.story_has("worker-1", "replaced")
    finish(job)


@pytest.mark.release
def test_auto_mode_relieves_the_ps_that_stays_slow(start: Callable[..., Job]) -> None:
    # A PS is slow for the two windows before it is found: its load, told every 10 s, is one of that time then.
    job = start(2, 2, mode=Mode.AUTO, sync=Sync.ASP, straggler_window_s=15.0)
    with slow(job.driver, "ps-1", Persistent(DELAY_S / 5)):
        found = job.until(
            lambda now: ended(now, "move", "ps-1") or ended(now, "restart", "ps-1") or refused(now)
        )
    assert not refused(found), found.mitigations
    assert found.running is None or found.running.ps.count == 2
    finish(job)


def refused(now: JobSnapshot) -> list[Mitigation]:
    return [each for each in now.mitigations if each.status is ProposalStatus.FAILED]
