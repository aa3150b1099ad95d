"""A job is looked at before it starts."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.runtime.node.preflight import pack_code, validate_job, validate_packed_job
from dlrover_nb.core.structs.job.job import Averages, DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Sync

SPEC = JobSpec("try")


class Net(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.out = nn.Linear(columns.n_numeric, 1)

    def forward(self, embedded, dense):
        return self.out(dense).squeeze(1) + embedded.sum((1, 2))


class Batchwise(Net):
    """Normalises by the batch, which one row does not make."""

    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(columns.n_numeric, track_running_stats=False)

    def forward(self, embedded, dense):
        return super().forward(embedded, self.norm(dense) if self.training else dense)


def rows(n_row):
    class Rows:
        def __init__(self):
            self.n_row = n_row

        def read(self, start, stop):
            x = torch.arange(start, stop).double().numpy()
            return {"label": x % 2, "x": x}

    return Rows


class Endless:
    n_row = None

    def rows(self, start):
        return iter([{"label": torch.arange(start, start + 100).numpy() % 2, "x": torch.rand(100).numpy()}])


def test_a_job_of_built_in_parts_needs_nothing_but_its_features():
    prepared = validate_job(SPEC)
    assert prepared.spec == SPEC
    assert prepared.packed == ()
    assert prepared.features.n_train > 0


def test_a_stream_cannot_be_trained_deterministically(error_words):
    fixed = replace(SPEC, sync=Sync.BSP, deterministic=True, global_batch=2 * SPEC.batch_size)
    with error_words(InvalidValueError):
        validate_job(fixed, data=Endless)
    assert validate_job(fixed, data=rows(5000)).spec.step_batches == 2


def test_own_model_and_rows_are_named_counted_and_written(tmp_path):
    prepared = validate_job(SPEC, model=Net, data=rows(100))
    model, data = prepared.spec.model, prepared.spec.data
    assert (model.name, model.n_dense, data.format) == ("custom", 2, DataFormat.OWN)
    assert (prepared.features.n_train, prepared.features.n_eval) == (90, 10)
    prepared.write(tmp_path)
    names = {f"code-{code.removeprefix('pickle:')}.pickle" for code in (model.code, data.path)}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_the_short_last_batch_is_tried_too():
    spec = replace(SPEC, batch_size=10, data=replace(SPEC.data, holdout=0.0))
    assert validate_job(spec, model=Batchwise, data=rows(102)).spec.model.n_dense == 4
    with pytest.raises(
        InvalidValueError, match="Batchwise on 1 sample rows failed: ValueError: Expected more"
    ):
        validate_job(spec, model=Batchwise, data=rows(101))


class Normed(Net):
    def __init__(self, columns):
        super().__init__(columns)
        self.norm = nn.BatchNorm1d(columns.n_numeric)

    def forward(self, embedded, dense):
        return super().forward(embedded, self.norm(dense))


def test_running_statistics_are_told_to_the_parameter_servers_and_small_batches_to_the_user(words):
    spec = replace(SPEC, batch_size=10, data=replace(SPEC.data, holdout=0.0))
    prepared = validate_job(spec, model=Normed, data=rows(101))  # the last batch is a single row
    model = prepared.spec.model
    assert (model.n_dense, model.averages, model.n_average) == (2 + 2 + 2, (Averages(2, 0.1),), 2)
    (warning,) = [each for each in prepared.schema.warnings if "normalization" in each]
    assert warning == words
    larger = validate_job(replace(spec, batch_size=16), model=Normed, data=rows(101))
    assert not any("normalization" in each for each in larger.schema.warnings)


def test_installed_code_is_imported_and_tried():
    spec = replace(SPEC, model=ModelSpec(name="custom", code="torch.nn:Identity"))
    with pytest.raises(InvalidValueError, match="Identity"):
        validate_job(spec)


def test_code_of_an_earlier_job_is_asked_for_again(error_words):
    data = DataSpec(DataFormat.OWN, "pickle:" + "0" * 64)
    for spec in (replace(SPEC, data=data), replace(SPEC, model=ModelSpec(name="custom", code=data.path))):
        with error_words(InvalidValueError):
            validate_job(spec)


def test_an_unknown_model_is_refused_before_anything_starts(error_words):
    with error_words(InvalidValueError):
        validate_job(replace(SPEC, model=ModelSpec(name="deepwide")))


def test_a_master_that_looks_instead_of_the_client_finds_the_same(tmp_path):
    prepared = validate_job(SPEC, model=Net)
    spec, packed = pack_code(SPEC, model=Net)
    for code in packed:
        code.write(tmp_path)
    assert validate_packed_job(spec, tmp_path) == (prepared.spec, prepared.features)


def test_code_that_did_not_arrive_is_told_before_it_is_tried(tmp_path):
    spec, _ = pack_code(SPEC, model=Net)
    with pytest.raises(InvalidValueError, match="give the object itself as model"):
        validate_packed_job(spec, tmp_path)
