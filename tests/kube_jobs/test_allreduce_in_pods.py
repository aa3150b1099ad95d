"""All-reduce jobs of our own models in real pods: kept, loaded by a client, and begun from."""

from __future__ import annotations

import pytest
from support.kubernetes.jobs_in_pods import job
from support.waiting import LIMIT_S

from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.structs.job.early_stopping import EarlyStopping, Metric
from dlrover_nb.core.structs.job.job import JobPhase, ModelSpec
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = [pytest.mark.kube, pytest.mark.pods]

PLAN = ResourcePlan(worker=RolePlan(2, 0.6, 768), ps=RolePlan(1, 0.3, 512))


def allreduce(name, **changes):
    return job(name, plan=PLAN, sync=Sync.ALLREDUCE, **({"n_epoch": 2, "batch_size": 256} | changes))


@pytest.mark.release
def test_a_model_is_loaded_from_pods_and_another_job_begins_from_it(place):
    first = place.cluster.submit(
        allreduce("first", n_epoch=20, early_stopping=EarlyStopping(Metric.LOSS, patience=50, target=0.42))
    )
    end = first.wait(LIMIT_S)
    assert end.phase is JobPhase.SUCCEEDED, (end.message, [line.text for line in first.logs(n_line=200)])
    assert "training loss" in end.message
    assert end.evaluation is not None
    model = load_model(first)
    assert abs(model.evaluate().auc - end.evaluation.auc) < 1e-6, "what is loaded is what was evaluated"

    source = f"{STATE}/{end.folder.rpartition('/')[2]}"
    still = ModelSpec(learning_rate=1e-9)  # what comes out is what it began with
    second = place.cluster.submit(allreduce("second", n_epoch=1, model=still, start_from=StartFrom(source)))
    then = second.wait(LIMIT_S)
    assert then.phase is JobPhase.SUCCEEDED, (then.message, [line.text for line in second.logs(n_line=200)])
    assert then.began_from is not None
    assert abs(then.evaluation.auc - end.evaluation.auc) < 1e-4

    third = place.cluster.submit(allreduce("third", start_from=StartFrom(f"{STATE}/none")))
    failed = third.wait(LIMIT_S)
    assert failed.phase is JobPhase.FAILED
    assert "none" in failed.message
