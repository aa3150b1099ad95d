"""What a submit says of rows, code and places before anything is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dlrover_nb.core.backends.kubernetes.jobs.submission import looked_at, new_pod_job
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.kubernetes import STATE, KubernetesSpec, Volume
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from pathlib import Path

SPEC = JobSpec("ctr")


def rows_at(path: str, *mounts: str) -> JobSpec:
    mounted = KubernetesSpec(volumes=tuple(Volume(mount, claim="rows") for mount in mounts))
    return replace(SPEC, data=DataSpec(DataFormat.PARQUET, path), kubernetes=mounted)


def test_rows_on_a_volume_are_left_to_the_master_and_own_code_is_packed_for_it() -> None:
    spec, features, _, packed = looked_at(
        rows_at("/data/rows.parquet", "/data"), model=lambda _: None, data=None
    )
    assert features is None
    assert [spec.model.code] == [each.code for each in packed]


def test_rows_that_only_the_client_sees_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(InvalidValueError, match="pods cannot read"):
        looked_at(rows_at(str(tmp_path / "rows.parquet")), model=None, data=None)


def test_rows_that_come_as_an_object_are_looked_at_here(tmp_path: Path) -> None:
    class Rows:
        n_row = 4

        def read(self, start: int, stop: int) -> dict[str, list[float]]:
            return {"label": [0.0, 1.0, 0.0, 1.0][start:stop], "x": [1.0, 2.0, 3.0, 4.0][start:stop]}

    spec = replace(SPEC, data=replace(SPEC.data, holdout=0.25))
    found, features, _, packed = looked_at(spec, model=None, data=Rows())
    assert features is not None
    assert found.data.path == packed[0].code


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "ctr: no file outlives this job's pods"),
        ({"checkpoint_url": "s3://b"}, "ctr: the job does not outlive its master's pod"),
        ({"kubernetes": KubernetesSpec(volumes=(Volume(STATE, claim="c"),))}, ""),
    ],
)
def test_what_is_lost_with_pods_is_told_in_one_line_at_submit(caplog, changes: dict, told: str) -> None:
    new_pod_job(replace(SPEC, **changes), None, (), None)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == bool(told)
    assert all(told in line and "\n" not in line for line in lines)
