"""A notebook's own model, trained in real pods and brought back."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from kube import host_files
from waiting import LIMIT_S

from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes
from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.structs.job import JobPhase, Mode
from dlrover_nb.core.structs.kubernetes import STATE, Volume
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.client.handle import JobHandle

pytestmark = [pytest.mark.kube, pytest.mark.pods]

PLAN = ResourcePlan(RolePlan(1, 0.8, 700), RolePlan(2, 0.25, 320))


def own_model(columns):
    """Make a small model; it is pickled by value."""
    from torch import nn  # noqa: PLC0415 - as above

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(columns.n_numeric, 1)

        def forward(self, embedded, dense):
            return self.out(dense).squeeze(1) + embedded.sum((1, 2))

    return Net()


def end_of(job: JobHandle):
    until = time.monotonic() + LIMIT_S
    while not (last := job.snapshot()).phase.is_final:
        assert time.monotonic() < until, (last.phase, last.message, last.nodes)
        time.sleep(0.5)
    return last


def test_a_notebooks_model_is_trained_in_pods_and_predicts_here(
    nodes, namespace, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", nodes.kubeconfig)
    state = tmp_path / "state"
    state.mkdir(mode=0o777)
    state.chmod(0o777)
    spec = job_from({"name": "own", "kubernetes": host_files()})
    kube = replace(spec.kubernetes, volumes=(*spec.kubernetes.volumes, Volume(STATE, host_path=str(state))))
    spec = replace(spec, kubernetes=replace(kube, linger_s=60.0), plan=PLAN, mode=Mode.MANUAL)
    cluster = connect_kubernetes(namespace=namespace(nodes))
    job = cluster.submit(spec, model=own_model)
    last = end_of(job)
    assert last.phase is JobPhase.SUCCEEDED, last.message
    assert last.evaluation is not None
    (folder,) = state.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert load_model(job).evaluate().auc == pytest.approx(last.evaluation.auc, abs=1e-5)
    cluster.delete("own")
