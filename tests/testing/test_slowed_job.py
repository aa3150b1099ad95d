"""Nodes of a real job are slowed in every way, speed up again, and the job loses nothing.

Work is synchronous, so that no worker trains the rest of the rows while another one is slow. Times are those that
nodes report, and are compared with delays far above what a busy machine adds to an iteration.
"""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, n_process, plan, succeeded
from support.waiting import until

from dlrover_nb.core.data import make_features
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.testing.faults import CpuShare, Latency, Persistent, slow
from dlrover_nb.testing.faults.cpu_group import cores_of, own_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from dlrover_nb.core.structs.training.samples import NodeSample

DELAY_S = 2.0
N_REPORT = 3


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Job]]:
    jobs = []

    def begin(**changes: object) -> Job:
        jobs.append(job := Job(tmp_path, make_features(DataSpec(), ModelSpec()), plan=plan(2, 1), **changes))
        job.driver.start()
        job.until(lambda now: now.train.n_sample_done and n_process(now) == 3)
        return job

    yield begin
    for job in jobs:
        job.close()


def next_reports(job: Job, node: str) -> list[NodeSample]:
    """Wait for some further reports with iterations of one node."""
    found: dict[float, NodeSample] = {}
    from_s = job.now.at_s

    def enough() -> bool:
        view = next((view for view in job.now.nodes if view.id == node), None)
        assert view is not None, f"{node} ended: {job.now.story}"
        if view.last is not None and view.last.n_iter and view.last.at_s - view.last.window_s > from_s:
            found[view.last.at_s] = view.last
        return len(found) >= N_REPORT

    until(enough, what=lambda: f"{N_REPORT} reports of {node}: {found}")
    return list(found.values())


def own_s(reports: list[NodeSample]) -> float:
    """Return a typical iteration without the wait for peers."""
    return median(report.iter_s - report.split.peers_s for report in reports)


def until_own(job: Job, node: str, is_so: Callable[[float], bool]) -> float:
    """Wait until the iterations of a node are as told; the first reports may hold some from before."""
    told = [0.0]

    def holds() -> bool:
        told[0] = own_s(next_reports(job, node))
        return is_so(told[0])

    until(holds, what=lambda: f"{node}, whose iteration takes {told[0]:.3f} s")
    return told[0]


def pid_of(job: Job, node: str) -> int:
    pid = next(view.pid for view in job.now.nodes if view.id == node)
    assert pid is not None
    return pid


@pytest.mark.release
def test_a_real_jobs_nodes_are_slowed_as_asked_and_speed_up_again(start: Callable[..., Job]) -> None:
    job = start(sync=Sync.BSP, n_epoch=1000)
    nodes = {view.id for view in job.now.nodes}

    with slow(job.driver, "worker-1", Persistent(DELAY_S)):
        slowed_s = until_own(job, "worker-1", lambda told_s: told_s > DELAY_S / 2)
        assert (
            own_s(next_reports(job, "worker-0")) < slowed_s / 2
        )  # it waits for its peer, and is as fast as before
    until_own(job, "worker-1", lambda told_s: told_s < DELAY_S / 2)

    with slow(job.driver, "worker-0", CpuShare(0.25)) as fault:
        group = own_group(pid_of(job, "worker-0"), "real-worker-0")
        assert (group is None) == ("stopped for 75 %" in fault.how)
        assert group is None or cores_of(group) == pytest.approx(0.25 * 0.5, rel=0.01)
        next_reports(job, "worker-0")
    assert group is None or cores_of(group) == pytest.approx(0.5)

    with slow(job.driver, "ps-0", Latency(DELAY_S / 2)) as fault:
        if "are not delayed" not in fault.how:  # this account may not move connections
            until_own(job, "worker-0", lambda told_s: told_s > DELAY_S / 2)
    until_own(job, "worker-0", lambda told_s: told_s < DELAY_S / 2)

    with slow(job.driver, "ps-0", Persistent(0.1)):
        next_reports(job, "ps-0")
    assert {view.id for view in job.now.nodes} == nodes  # none was taken for dead


@pytest.mark.release
def test_a_job_that_is_slowed_to_its_end_trains_every_row_once(start: Callable[..., Job]) -> None:
    job = start(n_epoch=4)
    with slow(job.driver, "ps-0", Latency(0.05)):
        next_reports(job, "worker-0")
    fault = slow(job.driver, "worker-1", Persistent(0.05))
    succeeded(job)
    assert until(lambda: fault.ended) in {"it was let go", "worker-1 has ended"}
