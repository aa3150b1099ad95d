"""A trained model, loaded from a job's last checkpoint: in any process, also after the cluster is gone.

All input is in the run folder: the job's file defines the encoding of rows and the module, the manifest of a
checkpoint names the files of parameters, and a user's own code is beside them. Parameters are the last ones,
not those of the best evaluation: older tables are not kept.
"""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.data.encode import PADDING, encode_inputs, labels_of
from dlrover_nb.core.data.objects.arrow_tables import as_table, one_row
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.types.trained_types import text_types
from dlrover_nb.core.disk.files import write
from dlrover_nb.core.errors import CheckpointError, InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import data_format, full_path
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.models.metrics import evaluate
from dlrover_nb.core.rundir.checkpoint_folder import CheckpointFolder
from dlrover_nb.core.rundir.job_file import JobFile, read_job
from dlrover_nb.core.rundir.locate import run_folder
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import fill
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.runtime.store.batches import with_padding
from dlrover_nb.core.structs.job.datafiles import ENDINGS, bare
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import PartSource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import torch
    from numpy.typing import NDArray

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.data.features import FeatureSpec
    from dlrover_nb.core.structs.views.snapshot import Evaluation

    Floats = NDArray[np.float32]
    Ids = NDArray[np.int64]

N_ROW_AT_ONCE = 8192
PASSING = 3  # checkpoints that may be replaced by newer ones while a running job's model is read


def load_model(job: JobHandle | Path | str) -> TrainedModel:
    """Load the model of a job from its last checkpoint.

    Parameters
    ----------
    job
        A job, its name (the newest run of that name on this machine), or its run folder.

    Raises
    ------
    NotFoundError
        When there is no such job, or it has no checkpoint yet.
    CheckpointError
        When it is no run folder, or its checkpoint cannot be read.
    """
    if isinstance(job, str | Path):
        return _model_in(run_folder(job).resolve())
    scratch = Path(mkdtemp(prefix="dlrover-nb-"))
    try:
        model = _model_in(job.fetch_model(scratch) or Path(job.snapshot().folder).resolve())
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    weakref.finalize(model, shutil.rmtree, scratch, ignore_errors=True)  # its code is there
    return model


def _model_in(folder: Path) -> TrainedModel:
    job = read_job(folder)
    return TrainedModel(job.spec, job.features, _stored(folder, job), folder)


def _stored(folder: Path, job: JobFile) -> ParameterStore:
    """Return all parameters; of a running job, which replaces its checkpoints, those of the latest."""
    model, features = job.spec.model, job.features
    n_dense = dense_parameter_count(model, len(features.categorical), len(features.numeric))
    checkpoints = CheckpointFolder(folder, job.spec.checkpoint_url)
    for attempt in range(PASSING):
        manifest = checkpoints.latest()
        if manifest is None:
            break
        sources = [PartSource(url, sha256) for url, sha256 in manifest.files]
        try:
            return fill(
                lambda: ParameterStore(model, features.n_table_row, n_dense),
                sources,
                np.ones(N_BUCKET, np.bool_),
            ).store
        except CheckpointError:
            newest = checkpoints.latest()
            if attempt == PASSING - 1 or newest is None or newest.number == manifest.number:
                raise
    raise NotFoundError(f"job {job.spec.name} has no checkpoint in {folder}; wait until it has saved one")


class TrainedModel:
    """A model and its parameters.

    Parameters
    ----------
    spec, features
        Of the job.
    store
        All parameters.
    folder
        The run folder, where a user's own code lies.
    """

    def __init__(self, spec: JobSpec, features: FeatureSpec, store: ParameterStore, folder: Path) -> None:
        from dlrover_nb.core.models.learner import Learner  # noqa: PLC0415 - it imports torch

        self.spec, self.features = spec, features
        self._store, self._folder = store, folder
        n_categorical, n_numeric = len(features.categorical), len(features.numeric)
        self._learner = Learner(
            spec.model, n_categorical, n_numeric, sequences=features.sequences, folder=folder
        )
        values, dense = self._learner.values, store.dense
        if len(values) != len(dense):
            raise CheckpointError(
                f"expected {len(values)} dense parameters, the checkpoint has {len(dense)}; "
                "the model's code differs from the code that was trained"
            )
        values[:] = dense

    def predict(self, rows: Any) -> Floats:  # noqa: ANN401 - a path, or all that `as_table` and `one_row` take
        """Return the probability of label 1 of each row, float32 of shape (n,).

        Parameters
        ----------
        rows
            What a submit takes as data: a DataFrame of pandas or polars, an Arrow table, a mapping of
            columns, or the path of files; and a single row as a mapping of values or a Series. It needs the
            columns that were trained on; more columns are ignored. Values are read in the types of training,
            so that the same rows have the same probabilities in every form (`core.data.types.trained_types`).

        Raises
        ------
        NotFoundError, InvalidValueError
            When there is no such file, a column is missing, or it cannot be read in the type of training.
        """
        return _joined([self._scores(*each) for each in self._encoded(self._tables(rows))])

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the parameters of a user's own module by their names in it, embedding tables included.

        ``module.load_state_dict(model.state_dict())`` then makes the module that `dlrover_nb.elastic` took a
        trained one.

        Raises
        ------
        InvalidValueError
            When the job's model is no module that `elastic` took.
        """
        from dlrover_nb.core.models.elastic.export import state_of  # noqa: PLC0415 - it imports torch

        return state_of(self._learner.module, self._store)

    def evaluate(self, rows: Any = None) -> Evaluation:  # noqa: ANN401 - as above
        """Return AUC and log loss on labeled rows; None: on the rows that the job kept for evaluation.

        Raises
        ------
        InvalidValueError
            As `predict`, and when the rows are all of one class.
        """
        if rows is None:
            return self._evaluate_held_out()
        label = self.features.label
        tables = list(self._tables(rows, label))
        labels = [labels_of(table.column(label), label, 0) for table in tables]
        scores = [self._scores(*each) for each in self._encoded(tables)]
        return evaluate(_joined(scores), _joined(labels))

    def _evaluate_held_out(self) -> Evaluation:
        reader = ShardReader(self.spec.data, self.features, folder=self._folder)
        first, stop = self.features.n_train, self.features.n_train + self.features.n_eval
        batches = [
            reader.read(start, min(start + N_ROW_AT_ONCE, stop))
            for start in range(first, stop, N_ROW_AT_ONCE)
        ]
        scores = [self._scores(batch.ids, batch.dense) for batch in batches]
        return evaluate(_joined(scores), _joined([batch.labels for batch in batches]))

    def _encoded(self, tables: Iterable[pa.Table]) -> Iterator[tuple[Ids, Floats]]:
        first_row = 0
        for table in tables:
            yield encode_inputs(table, self.features, first_row)
            first_row += table.num_rows

    def _tables(self, rows: Any, *more: str) -> Iterator[pa.Table]:  # noqa: ANN401 - as above
        """Yield the rows with the columns that are needed, a few thousand at a time."""
        features = self.features
        columns = [*(c.name for c in features.numeric), *(c.name for c in features.categorical), *more]
        if isinstance(rows, str | Path):
            yield from self._read(full_path(str(rows), Path.cwd()), columns)
            return
        table = as_table(one_row(rows, [column.name for column in features.sequences]), columns)
        _check_columns(columns, table.column_names)
        for start in range(0, table.num_rows, N_ROW_AT_ONCE):
            yield table.slice(start, N_ROW_AT_ONCE).select(columns)

    def _read(self, path: str, columns: list[str]) -> Iterator[pa.Table]:
        kind = data_format([path])
        if kind is None:
            raise InvalidValueError(
                f"cannot infer the format from {bare(path)}; supported: {', '.join(ENDINGS)}"
            )
        features = self.features
        ids, numbers = tuple(c.name for c in features.categorical), tuple(c.name for c in features.numeric)
        separator = self.spec.data.separator if kind == DataFormat.CSV else ""
        source = open_source(
            DataSpec(kind, path, columns[-1], numeric=numbers, categorical=ids, separator=separator),
            types=text_types(features),
        )
        assert source.n_row is not None  # files have a known length
        _check_columns(columns, source.kinds)
        for start in range(0, source.n_row, N_ROW_AT_ONCE):
            yield source.read(start, min(start + N_ROW_AT_ONCE, source.n_row), columns)

    def _scores(self, ids: Ids, dense: Floats) -> Floats:
        is_id = ids != PADDING
        distinct, inverse = np.unique(ids[is_id], return_inverse=True)
        places = with_padding(inverse, is_id, len(distinct))
        return self._learner.scores(self._store.pull(distinct), places, dense)


def write_scores(path: Path | str, scores: Floats, *, force: bool = False) -> Path:
    """Write probabilities as the one column of a Parquet file, in the order of the rows; return its path.

    Raises
    ------
    NotFoundError, InvalidValueError
        As `core.disk.files.write`.
    """
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"probability": scores}), sink)
    return write(path, sink.getvalue().to_pybytes(), force=force)


def _check_columns(wanted: list[str], there: Any) -> None:  # noqa: ANN401 - any collection of names
    missing = [name for name in wanted if name not in there]
    if missing:
        raise InvalidValueError(
            f"the rows have no column {', '.join(map(repr, missing[:5]))}; the model needs it"
        )


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0, np.float32)
