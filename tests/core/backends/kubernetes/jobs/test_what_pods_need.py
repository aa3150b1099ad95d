"""What a submit says of rows, code and places before anything is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import nn

from dlrover_nb import elastic
from dlrover_nb.core.backends.kubernetes.jobs.submission import Prepared, new_pod_job, prepared
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.checkpoints import read_url
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import part_of
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.job.start_from import StartFrom
from dlrover_nb.core.structs.wire.pod_contract import PodJob

if TYPE_CHECKING:
    from pathlib import Path

SPEC = JobSpec("ctr")


class OfUser(nn.Module):
    """A table and a number."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.out = nn.Embedding(40, 8), nn.Linear(9, 1)

    def forward(self, ids: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.out(torch.cat([self.users(ids[:, 0]), numbers], 1))
        return logits


def rows_at(path: str, *mounts: str) -> JobSpec:
    mounted = KubernetesSpec(volumes=tuple(Volume(mount, claim="rows") for mount in mounts))
    return replace(SPEC, data=DataSpec(DataFormat.PARQUET, path), kubernetes=mounted)


def test_rows_on_a_volume_are_left_to_the_master_and_own_code_is_packed_for_it() -> None:
    job = prepared(rows_at("/data/rows.parquet", "/data"), model=lambda _: None, data=None)
    assert job.features is None
    assert [job.spec.model.code] == [each.code for each in job.packed]


def test_rows_that_only_the_client_sees_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(InvalidValueError, match="pods cannot read"):
        prepared(rows_at(str(tmp_path / "rows.parquet")), model=None, data=None)


def test_rows_that_come_as_an_object_are_looked_at_here(tmp_path: Path) -> None:
    class Rows:
        n_row = 4

        def read(self, start: int, stop: int) -> dict[str, list[float]]:
            return {"label": [0.0, 1.0, 0.0, 1.0][start:stop], "x": [1.0, 2.0, 3.0, 4.0][start:stop]}

    spec = replace(SPEC, data=replace(SPEC.data, holdout=0.25))
    job = prepared(spec, model=None, data=Rows())
    assert job.features is not None
    assert job.spec.data.path == job.packed[0].code


def test_tables_of_a_module_are_sent_to_where_pods_can_read_them(tmp_path: Path) -> None:
    module = OfUser()
    spec = rows_at("/data/rows.parquet", "/data")
    job = prepared(spec, model=elastic(module, ids=["user"], numbers=["age"]), data=None)
    assert job.spec.data.categorical == ("user",)
    assert job.spec.data.numeric == ("age",)
    with pytest.raises(InvalidValueError, match=r"set kubernetes\.code_url, or checkpoint_url"):
        new_pod_job(job, None)
    place = f"file://{tmp_path}/code/"
    pods = replace(job.spec.kubernetes, code_url=place)
    for settings in ({"kubernetes": pods}, {"checkpoint_url": place}):
        pod_job, _ = new_pod_job(replace(job, spec=replace(job.spec, **settings)), None)
        first = pod_job.first
        assert first is not None
        assert first.place.startswith(f"file://{tmp_path}/code/ctr-{pod_job.run}/")
        part = part_of(read_url(first.place, first.sha256))
        assert np.array_equal(part.table[:, : module.users.embedding_dim], module.users.weight.detach())
        assert from_json(to_json(pod_job), PodJob) == pod_job


def test_a_job_from_a_checkpoint_sends_no_tables() -> None:
    spec = replace(rows_at("/data/rows.parquet", "/data"), start_from=StartFrom("s3://bucket/daily"))
    assert prepared(spec, model=elastic(OfUser(), ids=["user"], numbers=["age"]), data=None).first is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "ctr: no file outlives this job's pods"),
        ({"checkpoint_url": "s3://b"}, "ctr: the job does not outlive its master's pod"),
        ({"kubernetes": KubernetesSpec(volumes=(Volume(STATE, claim="c"),))}, ""),
    ],
)
def test_what_is_lost_with_pods_is_told_in_one_line_at_submit(caplog, changes: dict, told: str) -> None:
    new_pod_job(Prepared(replace(SPEC, **changes)), None)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(told)
    assert all(told in line and "\n" not in line for line in lines)
