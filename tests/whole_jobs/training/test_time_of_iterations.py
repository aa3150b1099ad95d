"""Where the time of real nodes goes: what they report is all of it, each part once."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import plan, succeeded

from dlrover_nb.core.rundir.journal import read_events
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.training.samples import NodeSample, TimeSplit
from dlrover_nb.core.structs.views.events import NodeReported

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.driver.real_job import Job

PARTS = tuple(field.name for field in fields(TimeSplit))


def by_node(job: Job) -> dict[str, list[NodeSample]]:
    found: dict[str, list[NodeSample]] = {}
    for event in read_events(job.folder):
        if isinstance(event, NodeReported):
            found.setdefault(event.sample.node, []).append(event.sample)
    return found


@pytest.mark.release
@pytest.mark.parametrize(("sync", "overlap"), [(Sync.ASP, False), (Sync.ASP, True), (Sync.BSP, False)])
def test_parts_of_an_iteration_sum_to_it_and_iterations_to_no_more_than_the_time_that_passed(
    start: Callable[..., Job],
    sync: Sync,
    overlap: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    job = start(plan=plan(2, 2), sync=sync, overlap=overlap, n_epoch=2)
    succeeded(job)
    reports = by_node(job)
    assert {samples[0].role for samples in reports.values()} == set(Role)
    for samples in reports.values():
        for sample in samples:
            assert sample.split.total_s == pytest.approx(sample.iter_s, rel=1e-6)
            assert min(getattr(sample.split, part) for part in PARTS) >= -1e-9
        passed_s = sum(sample.window_s for sample in samples)
        assert sum(sample.n_iter * sample.iter_s for sample in samples) <= passed_s * (1 + 1e-6)
    told = [s.split for samples in reports.values() for s in samples if s.role is Role.WORKER and s.n_iter]
    assert all(split.compute_s > 0 and split.idle_s == 0 for split in told)
    assert any(split.peers_s > 0 for split in told) == (sync is Sync.BSP)
    served = [s.split for samples in reports.values() for s in samples if s.role is Role.PS and s.n_iter]
    assert all(split.compute_s == split.data_s == 0 for split in served)
    assert sum(split.update_s for split in served) > 0
