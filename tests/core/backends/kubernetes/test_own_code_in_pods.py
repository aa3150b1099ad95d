"""A notebook's own model, trained in real pods and brought back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from support.kubernetes.kube import host_files
from support.waiting import LIMIT_S
from torch import nn

from dlrover_nb import elastic
from dlrover_nb.core.backends.kubernetes.cluster import connect_kubernetes
from dlrover_nb.core.client.trained_model import load_model
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.job.kubernetes import STATE, Volume
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

if TYPE_CHECKING:
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


def without_rights(columns):
    """Make the model where no account is, and nowhere else."""
    account = Path("/var/run/secrets/kubernetes.io/serviceaccount/token")
    if account.exists():
        raise RuntimeError(f"found {account}")
    return own_model(columns)


def broken(columns):
    """Make a model that takes another number of columns."""
    from torch import nn  # noqa: PLC0415 - as above

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(columns.n_numeric + 1, 1)

        def forward(self, embedded, dense):
            return self.out(dense).squeeze(1) + embedded.sum((1, 2))

    return Net()


class Tables(nn.Module):
    """A module with an embedding table of its own, of more ids than the rows have."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds, self.out = nn.Embedding(50, 8), nn.Linear(9, 1)

    def forward(self, ids, numbers):
        return self.out(torch.cat([self.kinds(ids[:, 0]), numbers], 1))


def end_of(job: JobHandle):
    until = time.monotonic() + LIMIT_S
    while not (last := job.snapshot()).phase.is_final:
        assert time.monotonic() < until, (last.phase, last.message, last.nodes)
        time.sleep(0.5)
    return last


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    return folder


@pytest.fixture
def cluster(nodes, namespace, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", nodes.kubeconfig)
    return connect_kubernetes(namespace=namespace(nodes))


def described(*volumes: Volume, **fields: object):
    spec = job_from({"name": "own", "kubernetes": host_files(), **fields})
    kube = replace(spec.kubernetes, volumes=(*spec.kubernetes.volumes, *volumes), linger_s=60.0)
    return replace(spec, kubernetes=kube, plan=PLAN, mode=Mode.MANUAL)


@pytest.mark.more
def test_a_notebooks_model_is_trained_in_pods_and_predicts_here(cluster, state) -> None:
    job = cluster.submit(described(Volume(STATE, host_path=str(state))), model=own_model)
    last = end_of(job)
    assert last.phase is JobPhase.SUCCEEDED, last.message
    assert last.evaluation is not None
    (folder,) = state.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert load_model(job).evaluate().auc == pytest.approx(last.evaluation.auc, abs=1e-5)
    cluster.delete("own")


@pytest.fixture
def rows(tmp_path: Path) -> Volume:
    """Give rows that pods alone can read, so that the client cannot try the code on them."""
    folder = tmp_path / "rows"
    folder.mkdir(mode=0o755)
    for parent in (folder, *list(folder.parents)[:3]):
        parent.chmod(0o755)
    lines = [f"{i % 2},{i % 7},{i / 10}" for i in range(400)]
    (folder / "rows.csv").write_text("\n".join(["label,kind,size", *lines]) + "\n")
    return Volume("/data", host_path=str(folder), read_only=True)


@pytest.mark.release
def test_code_that_only_pods_can_try_is_tried_without_an_account(cluster, rows) -> None:
    data = {"path": "/data/rows.csv", "label": "label", "categorical": ["kind"], "numeric": ["size"]}
    right = end_of(cluster.submit(described(rows, data=data), model=without_rights))
    assert right.phase is JobPhase.SUCCEEDED, right.message
    wrong = end_of(cluster.submit(replace(described(rows, data=data), name="wrong"), model=broken))
    assert wrong.phase is JobPhase.FAILED
    assert "mat1 and mat2 shapes cannot be multiplied" in wrong.message
    for name in ("own", "wrong"):
        cluster.delete(name)


@pytest.mark.more
def test_tables_of_a_module_begin_in_pods_with_the_values_that_they_have_here(
    cluster, state, rows, tmp_path
) -> None:
    code = tmp_path / "code"
    code.mkdir(mode=0o755)
    data = {"path": "/data/rows.csv", "label": "label"}
    spec = described(
        Volume(STATE, host_path=str(state)), Volume(str(code), host_path=str(code)), rows, data=data
    )
    spec = replace(spec, kubernetes=replace(spec.kubernetes, code_url=f"file://{code}"))
    module = Tables()
    job = cluster.submit(spec, model=elastic(module, ids=["kind"], numbers=["size"]))
    last = end_of(job)
    assert last.phase is JobPhase.SUCCEEDED, last.message
    trained, first = load_model(job).state_dict()["kinds.weight"], module.kinds.weight.detach()
    assert torch.equal(trained[7:], first[7:]), "no row has these ids"
    assert (trained[:7] != first[:7]).any(1).all()
    cluster.delete("own")
