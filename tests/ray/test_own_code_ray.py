"""A class of this file, which no node can import, trains on Ray; its job predicts after Ray let go of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from support.waiting import LIMIT_S
from torch import nn

from dlrover_nb import load_model, trainable
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import JobPhase, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

pytestmark = pytest.mark.ray

PLAN = ResourcePlan(RolePlan(1, 0.5, 512), RolePlan(1, 0.4, 256))
N_ROW = 4000


class Rows:
    n_row = N_ROW

    def read(self, start, stop):
        at = np.arange(start, stop)
        return {"label": at % 2, "x": np.where(at % 2, 1.0, -1.0), "site": at % 5}


@trainable
class Net(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.out = nn.Linear(columns.n_categorical * columns.row_width + columns.n_numeric, 1)

    def forward(self, embedded, dense):
        return self.out(torch.cat([embedded.flatten(1), dense], 1)).squeeze(1)


def test_own_code_trains_on_ray_and_predicts_afterwards(cluster):
    spec = JobSpec(
        "own", plan=PLAN, mode=Mode.MANUAL, model=ModelSpec(embedding_dim=2), batch_size=64, n_epoch=4
    )
    handle = cluster.submit(spec, model=Net, data=Rows())
    end = handle.wait(LIMIT_S)
    assert end.phase is JobPhase.SUCCEEDED, end.message
    assert end.evaluation is not None
    assert end.evaluation.auc > 0.99
    scores = load_model("own").predict({"x": [1.0, -1.0], "site": [0, 0]})
    assert scores[0] > 0.5 > scores[1]


@pytest.mark.more
def test_a_mistake_is_told_at_submit_and_starts_nothing(cluster):
    with pytest.raises(InvalidValueError, match="forward of <lambda> must take"):
        cluster.submit(JobSpec("wrong", plan=PLAN), model=lambda columns: nn.Linear(columns.n_numeric, 1))
    assert "wrong" not in [job.name for job in cluster.jobs()]
