"""Validate a job before it starts: its data, and the user's own code on a few rows.

A mistake is then one line for the user, and not a job that fails on its nodes. Code is tried in the form in
which nodes get it: written to a folder, verified, unpickled.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.models.built_in import histories_of
from dlrover_nb.core.models.trainable import CUSTOM, Columns
from dlrover_nb.core.moments import write_moment
from dlrover_nb.core.runtime.checkpoints.first_parameters import note_first, write_first
from dlrover_nb.core.runtime.kernels.elementwise import ElementwiseOptimizer
from dlrover_nb.core.structs.data.features import FeatureSpec  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.job.job import JobSpec  # noqa: TC001 - the same
from dlrover_nb.core.structs.job.secrets import check_complete
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Sync
from dlrover_nb.core.usercode import Packed, file_of, is_import, load, pack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.models.elastic.elastic_model import ElasticModel
    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.views.schema import DataSchema

_log = logging.getLogger(__name__)

N_TRIED = 64  # rows of a tried batch
LEAST_NORMED = 16  # rows of a batch whose variance is known within some 40 %
_NOISY = (
    "batch normalization takes mean and variance of each worker's own batch, and {n_row} rows give noisy "
    "ones; use batches of {least} rows or more, or LayerNorm"
)


@dataclass(frozen=True, slots=True)
class ValidatedJob:
    """A validated job: its data were read, its code was tried; `schema` tells the user what was found.

    `first` are the parameters that a user's own module has already, tables and all; None: they are made.
    """

    spec: JobSpec
    features: FeatureSpec
    schema: DataSchema
    packed: tuple[Packed, ...] = ()
    first: ParameterStore | None = None

    def write(self, folder: Path) -> None:
        """Put the user's code, and the parameters that it has, into the job's run folder."""
        for code in self.packed:
            code.write(folder)
        if self.first is not None:
            note_first(folder, write_first(str(folder), self.first.export()))


def _check_deadline(spec: JobSpec) -> None:
    """Refuse a deadline that has passed before the job begins."""
    late_s = SystemClock().now_s() - (spec.deadline_at_s or inf)
    if late_s >= 0:
        assert spec.deadline_at_s is not None
        raise InvalidValueError(
            f"the deadline of job {spec.name} must be in the future, got {write_moment(spec.deadline_at_s)}, "
            f"{late_s:,.0f} s ago; set a later one"
        )


def validate_job(
    spec: JobSpec, *, model: object = None, data: object = None, trained: FeatureSpec | None = None
) -> ValidatedJob:
    """Open the data, try the code, and return the completed specification; say what was guessed of the data.

    Parameters
    ----------
    model
        A user's class or function to train instead of `spec.model.name`; see `trainable`.
    data
        A user's object to read instead of `spec.data`; see `core.data.objects.own_source`.
    trained
        The encoding of the rows that the job's first parameters were trained with; None: they are untrained.

    Raises
    ------
    NotFoundError, InvalidValueError
        What is wrong with the data, with the code, or with a secret that was not stored.
    """
    check_complete(spec)
    _check_deadline(spec)
    _check_exchange(spec)
    spec, packed = pack_code(spec, model=model, data=data)
    with TemporaryDirectory(prefix="dlrover-nb-") as name:
        for code in packed:
            code.write(Path(name))
        elastic = _elastic(spec, Path(name), model)
        validated = _validated(spec, Path(name), trained, elastic)
        if elastic is not None and spec.start_from is None:
            validated = replace(validated, first=_first_parameters(validated.spec, elastic, Path(name)))
    return replace(validated, packed=packed)


def _elastic(spec: JobSpec, folder: Path, model: object = None) -> ElasticModel | None:
    """Return the module whose tables are to live on parameter servers, if the job's model is one."""
    if spec.model.name != CUSTOM:
        return None
    from dlrover_nb.core.models.elastic.elastic_model import ElasticModel  # noqa: PLC0415 - it imports torch

    _check_codes(spec, folder)
    if not isinstance(model, ElasticModel):
        model = load(spec.model.code, folder)
    return model if isinstance(model, ElasticModel) else None


def pack_job(
    spec: JobSpec, *, model: object = None
) -> tuple[JobSpec, tuple[Packed, ...], ParameterStore | None]:
    """Return a job whose rows only nodes can read, its code, and the parameters that its module has already.

    Raises
    ------
    InvalidValueError
        What is wrong with a module that has tables of its own.
    """
    spec, packed = pack_code(spec, model=model)
    with TemporaryDirectory(prefix="dlrover-nb-") as name:
        folder = Path(name)
        for code in packed:
            code.write(folder)
        try:
            elastic = _elastic(spec, folder, model)
        except DlroverError as error:
            _log.info("job %s: its code is not installed here, and is tried in a pod: %s", spec.name, error)
            return spec, packed, None
        if elastic is None or spec.start_from is not None:
            return spec, packed, None
        spec = elastic.completed(spec)
        spec, _ = _tried_module(spec, Columns(0, 0, spec.model.embedding_dim), [spec.batch_size], folder)
        return spec, packed, _first_parameters(spec, elastic, folder)


def _first_parameters(spec: JobSpec, elastic: ElasticModel, folder: Path) -> ParameterStore:
    """Return the parameters that a module has, as one parameter server would hold them before any step."""
    from dlrover_nb.core.models.learner import Learner  # noqa: PLC0415 - it imports torch
    from dlrover_nb.core.runtime.store import ParameterStore  # noqa: PLC0415 - with its kernel

    n_row = elastic.parts.layout.n_row
    learner = Learner(spec.model, 0, 0, folder=folder)  # such a module knows its columns itself
    store = ParameterStore(spec.model, n_row, len(learner.values))
    store.init_dense(learner.values)
    store.create_rows(np.arange(n_row))
    part = store.export()
    part.table[:, : spec.model.row_width] = 0
    for first_row, start, stop, values in elastic.first_rows():
        part.table[first_row : first_row + len(values), start:stop] = values
    return store


def _check_exchange(spec: JobSpec) -> None:
    if not spec.exchange.is_plain and spec.sync in {Sync.BSP, Sync.ALLREDUCE}:
        raise InvalidValueError(
            f"exchange ({spec.exchange.words}) needs sync asp, ssp or gba, got {spec.sync}: gradients of a "
            "round are kept and summed as they are; leave one of the two out"
        )
    if spec.exchange.dense_every > 1 and spec.sync is Sync.GBA:
        raise InvalidValueError(
            f"exchange.dense_every must be 1 with sync gba, got {spec.exchange.dense_every}: gradients of "
            "a batch are in one step as a whole; leave dense_every out"
        )


def pack_code(
    spec: JobSpec, *, model: object = None, data: object = None
) -> tuple[JobSpec, tuple[Packed, ...]]:
    """Return the specification with the user's own code named in it, and that code; as `validate_job`."""
    packed: list[Packed] = []
    if model is not None:
        packed.append(pack(model))
        spec = replace(spec, model=replace(spec.model, name=CUSTOM, code=packed[-1].code))
    if data is not None:
        packed.append(pack(data))
        spec = replace(spec, data=replace(spec.data, format=DataFormat.OWN, path=packed[-1].code))
    return spec, tuple(packed)


def validate_packed_job(
    spec: JobSpec, folder: Path, trained: FeatureSpec | None = None, *, has_first: bool = False
) -> tuple[JobSpec, FeatureSpec]:
    """Open the data, try the code that lies in `folder`, and return the completed specification.

    Where only nodes can read the data, the master does this instead of the client. `trained` is as for
    `validate_job`; `has_first`: the client sent the first parameters of a module with tables of its own.

    Raises
    ------
    NotFoundError, InvalidValueError
        What is wrong with the data, or with the code.
    """
    elastic = _elastic(spec, folder)
    if elastic is not None and not has_first and spec.start_from is None:
        raise InvalidValueError(
            "a module with tables of its own brings their first values, and none came with this job; submit "
            "it from where the module can be imported, or begin from a checkpoint (start_from)"
        )
    validated = _validated(spec, folder, trained, elastic)
    return validated.spec, validated.features


def _validated(
    spec: JobSpec, folder: Path, trained: FeatureSpec | None, elastic: ElasticModel | None = None
) -> ValidatedJob:
    _check_codes(spec, folder)
    spec = spec if elastic is None else elastic.completed(spec)
    ElementwiseOptimizer.named(spec.model.optimizer)  # refuses an unknown one
    features, schema = take_data(spec.data, spec.model, folder=folder, trained=trained)
    for text in schema.guesses:  # before anything runs: a call can still be ended
        _log.warning("job %s: %s", spec.name, text)
    _check_passes(spec, features)
    features = features if elastic is None else elastic.encoding(features)
    tried, warnings = _tried(spec, features, folder)
    warnings = warnings if elastic is None else (*warnings, *elastic.warnings())
    return ValidatedJob(tried, features, replace(schema, warnings=(*schema.warnings, *warnings)))


def _check_passes(spec: JobSpec, features: FeatureSpec) -> None:
    if features.is_stream and spec.n_epoch > 1:
        raise InvalidValueError(
            f"epochs of a stream must be 1, got {spec.n_epoch}; its rows are read once only"
        )
    if features.is_stream and spec.deterministic:
        raise InvalidValueError(
            "deterministic needs rows with an end, got a stream: its steps follow from the order of all "
            "rows; leave deterministic out"
        )
    rule = spec.early_stopping
    if rule is not None and rule.is_held_out and not features.n_eval:
        raise InvalidValueError("early stopping needs held-out rows, got none; set data.holdout")


def _check_codes(spec: JobSpec, folder: Path) -> None:
    """Refuse code that was pickled for an earlier job: it lies in that job's folder."""
    codes = {"model": spec.model.code, "data": spec.data.path if spec.data.format == DataFormat.OWN else ""}
    for argument, code in codes.items():
        if code and not is_import(code) and not (file_of(code) and (folder / file_of(code)).exists()):
            raise InvalidValueError(
                f"the {argument} {code[:20]} is not named package.module:name; "
                f"give the object itself as {argument}"
            )


def _tried(spec: JobSpec, features: FeatureSpec, folder: Path) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the completed specification, and what looks like a mistake in the model."""
    n_categorical, n_numeric = len(features.categorical), len(features.numeric)
    if spec.model.name != CUSTOM:
        histories_of(spec.model.name, features.sequences)  # refuses an unknown one, and DIN without a history
        return spec, ()
    columns = Columns(n_categorical, n_numeric, spec.model.embedding_dim, features.sequences)
    return _tried_module(spec, columns, [spec.batch_size, features.n_train % spec.batch_size], folder)


def _tried_module(
    spec: JobSpec, columns: Columns, n_rows: Sequence[int], folder: Path
) -> tuple[JobSpec, tuple[str, ...]]:
    """Return the same of a user's module, tried with batches of these sizes."""
    from dlrover_nb.core.models.custom import check  # noqa: PLC0415 - it imports torch

    sizes = {min(n, N_TRIED) for n in n_rows if n}
    checked = check(load(spec.model.code, folder), columns, sorted(sizes, reverse=True))
    model = replace(spec.model, n_dense=checked.n_dense, averages=checked.averages)
    n_row = spec.batch_of(spec.plan.worker.count)
    is_noisy = checked.averages and n_row < LEAST_NORMED
    noisy = (_NOISY.format(n_row=n_row, least=LEAST_NORMED),) if is_noisy else ()
    return replace(spec, model=model), (*checked.warnings, *noisy)
