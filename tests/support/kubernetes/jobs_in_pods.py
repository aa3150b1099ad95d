"""The small jobs that these tests run, and what is true of each that ended well."""

from __future__ import annotations

import math
from dataclasses import replace

from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec
from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from support.waiting import until

PLAN = ResourcePlan(worker=RolePlan(2, 0.4, 512), ps=RolePlan(2, 0.2, 256))
SMALL = ResourcePlan(worker=RolePlan(1, 0.8, 512), ps=RolePlan(1, 0.2, 256))
FOREVER = 10_000


def job(name, **changes):
    spec = JobSpec(
        name=name,
        plan=PLAN,
        mode=Mode.MANUAL,
        n_epoch=4,
        checkpoint_every_s=2.0,
        heartbeat_timeout_s=30.0,
        kubernetes=KubernetesSpec(linger_s=30.0),
    )
    return replace(spec, **changes)


def shards_of(spec, snapshot):
    n_train = snapshot.train.n_sample_total // spec.n_epoch
    return spec.n_epoch * math.ceil(n_train / (spec.batch_size * spec.shard_batches))


def assert_exact(spec, snapshot):
    """Every shard was trained once, and counted once."""
    assert snapshot.phase is JobPhase.SUCCEEDED, snapshot.message
    assert snapshot.train.done == snapshot.train.total == shards_of(spec, snapshot)
    assert snapshot.train.n_sample_done == snapshot.train.n_sample_total
    assert snapshot.evaluation.auc > 0.9


def trained(handle, n_sample):
    """Wait until a job runs as planned and has trained so much."""

    def look():
        try:
            snapshot = handle.snapshot()
        except BackendError:  # its master starts, or starts again
            return None
        assert not snapshot.phase.is_final, snapshot.message
        return snapshot if snapshot.running and snapshot.train.n_sample_done >= n_sample else None

    return until(look, what=f"{n_sample} trained samples of {handle.name}")


def ended(handle):
    """Wait for the end of a long job for as long as it gets on; return its last state."""
    now = handle.snapshot()
    while not now.phase.is_final:
        n_before = now.train.n_sample_done
        until(
            lambda n=n_before: got_on(handle, n), what=f"progress of {handle.name} beyond {n_before} samples"
        )
        now = handle.snapshot()
    return now


def got_on(handle, n_sample):
    now = handle.snapshot()
    return now.phase.is_final or now.train.n_sample_done > n_sample


def names_of(snapshot):
    return {node.id for node in snapshot.nodes}
