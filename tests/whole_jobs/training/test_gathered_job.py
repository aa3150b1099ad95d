"""Jobs whose PS gather gradients into global batches: of processes, with deaths and changes of plan."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from support.driver.real_job import Job, plan, succeeded, training_held_at

from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.more
def test_rows_count_once_over_kills_a_change_of_plan_and_checkpoints(start: Callable[..., Job]) -> None:
    job = start(
        plan=plan(2, 2), sync=Sync.GBA, n_epoch=6, batch_size=128, global_batch=1000, checkpoint_every_s=1.0
    )
    n_row = job.features.n_train
    with training_held_at(5 * n_row):
        job.until(lambda now: now.running and now.train.n_sample_done > n_row)
        killed = job.kill(Role.WORKER)
        job.until(lambda now: job.story_has(f"{killed} was lost") and now.train.n_sample_done > 2 * n_row)
        job.scale(plan(1, 1))
        job.until(lambda now: now.running == plan(1, 1) and now.train.n_sample_done > 3 * n_row)
        job.until(lambda _: any((job.folder / "checkpoints").glob("*/manifest.json")))
        killed = job.kill(Role.PS)
        job.until(lambda _: job.story_has(f"{killed} was lost"))
    succeeded(job)
