"""A model of ours that is trained by all-reduce in the actors of a Ray."""

from __future__ import annotations

import pytest
from support.conformance.programs import ended, plan_of, program_of, trains
from support.waiting import until

from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.spec_choices import Mode, Sync

pytestmark = pytest.mark.ray


@pytest.mark.release
def test_a_killed_worker_costs_no_row_and_the_model_is_kept(cluster):
    spec = JobSpec("ring", plan=plan_of(2), sync=Sync.ALLREDUCE, mode=Mode.MANUAL, batch_size=256, n_epoch=2)
    handle = cluster.submit(spec)
    trains(handle, 2)
    until(lambda: handle.snapshot().train.n_sample_done, what="the first rows")
    program_of(handle, "worker-1").kill()
    until(lambda: "worker-2" in [node.id for node in handle.snapshot().nodes], what="its successor")
    now = ended(handle)
    assert (now.phase, now.train.n_sample_done) == (JobPhase.SUCCEEDED, 2 * 99_000), now.message
    assert now.evaluation is not None
    assert abs(load_model(handle).evaluate().auc - now.evaluation.auc) < 1e-6
    cluster.delete("ring")
