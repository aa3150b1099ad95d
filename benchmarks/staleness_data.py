"""The rows of `staleness.py`: four public sets, as jobs with a sample of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlrover_nb.core.data import make_features
from dlrover_nb.core.rehearsal.sample import read_sample
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.rehearsal.sample import Sample

BATCH_SIZE = 128  # a quarter of the default: a sample of some 40,000 rows then has some 300 updates
LIKED = 4  # stars of MovieLens from which on a rating counts as positive
N_ROW = {"criteo": 40_000, "ipinyou": 24_000, "movielens": 40_000, "census": 32_000}
RATES = {
    "default": ModelSpec().learning_rate,
    "tuned": 0.1,
}  # of Adagrad: what a job has, and what Criteo takes


@dataclass(frozen=True)
class Setting:
    """One curve to measure: which rows, trained how."""

    data: str
    rate: str = "default"
    batch_size: int = BATCH_SIZE
    global_batch: int | None = None

    @property
    def name(self) -> str:
        return f"{self.data}, {self.rate} rate"


def sample_of(setting: Setting, shared: Path, scratch: Path, *, times: int = 1) -> Sample | None:
    """Return the rows of a setting, `times` as many as usual; None: they are not on this machine."""
    data = _data(setting.data, shared, scratch)
    if data is None:
        return None
    spec = JobSpec(
        name=f"staleness-{setting.data}",
        data=data,
        batch_size=setting.batch_size,
        global_batch=setting.global_batch,
        overlap=False,  # a gradient of w workers is then w - 1 updates old
        model=ModelSpec(learning_rate=RATES[setting.rate]),
    )
    return read_sample(spec, make_features(spec.data, spec.model), times * N_ROW[setting.data])


def with_other_seeds(sample: Sample, by: int) -> Sample:
    """Return the same rows with seeds that no run of the first ones has."""
    spec = sample.spec
    model = replace(spec.model, seed=spec.model.seed + by)
    return replace(sample, spec=replace(spec, seed=spec.seed + by, model=model))


def _data(name: str, shared: Path, scratch: Path) -> DataSpec | None:
    if name == "census":
        return DataSpec()  # the rows of the package
    path = (
        shared
        / {
            "criteo": "criteo/criteo_60k.parquet",
            "ipinyou": "ipinyou/train.parquet",
            "movielens": "movielens_100k/inter.parquet",
        }[name]
    )
    if not path.exists():
        return None
    if name == "criteo":
        numeric, ids = (tuple(f"{kind}{i}" for i in range(1, n)) for kind, n in (("I", 14), ("C", 27)))
        return DataSpec(DataFormat.PARQUET, str(path.resolve()), "label", numeric, ids, holdout=0.2)
    if name == "ipinyou":
        ids = tuple(f"f{i}" for i in range(16))
        return DataSpec(DataFormat.PARQUET, str(path.resolve()), "click", categorical=ids, holdout=0.2)
    ids = ("user_id", "item_id")
    return DataSpec(DataFormat.PARQUET, str(_liked(path, scratch)), "liked", categorical=ids, holdout=0.2)


def _liked(path: Path, scratch: Path) -> Path:
    """Write the ratings with a label: whether the user gave four stars or five."""
    table, made = pq.read_table(path), scratch / "movielens.parquet"
    liked = pc.cast(pc.greater_equal(table["rating"], LIKED), pa.int8())
    pq.write_table(table.select(["user_id", "item_id"]).append_column("liked", liked), made)
    return made
