"""Features of the user's data, and what is said when the data is not as expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data import Batch, ShardReader, make_features
from dlrover_nb.core.data.encode import distinct, hashes_of
from dlrover_nb.core.data.selection.feature_spec import ROOM, SMALL_TABLE, table_size
from dlrover_nb.core.data.source import FILE_FORMATS, SOURCES, open_source
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.data.features import CategoricalColumn
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MODEL = ModelSpec()


def parquet(folder: Path, table: dict[str, Any] | pa.Table, **options: Any) -> str:
    path = folder / "rows.parquet"
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), path, **options)
    return str(path)


def click_table(n: int) -> pa.Table:
    rng = np.random.default_rng(3)
    return pa.table(
        {
            "click": pa.array(rng.integers(0, 2, n), pa.int8()),
            "price": pa.array(rng.normal(0, 9, n)),
            "age": pa.array(rng.integers(0, 90, n)),
            "site": pa.array([f"site{i}" for i in rng.integers(0, 12, n)]),
            "device": pa.array([f"d{i}" for i in rng.integers(0, 5, n)]).dictionary_encode(),
            "user": pa.array(rng.integers(0, 10**9, n)),
            "tags": pa.array([[0.5, 2]] * n),
        }
    )


def spec(path: str, **options: Any) -> DataSpec:
    return DataSpec(DataFormat.PARQUET, path, label="click", **options)


def one_hot(batch: Batch, n_row: int) -> np.ndarray[Any, Any]:
    hot = np.zeros((len(batch), n_row), np.float32)
    np.put_along_axis(hot, batch.ids, 1, axis=1)
    return np.hstack([hot, batch.dense])


def test_every_format_has_a_source() -> None:
    assert set(SOURCES) | set(FILE_FORMATS) == set(DataFormat)


@pytest.mark.more
def test_logistic_regression_on_the_census_rows_reaches_auc_above_0_9() -> None:
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - a second, for this test only
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - the same

    features = make_features(DataSpec(), MODEL)
    reader = ShardReader(DataSpec(), features)
    train, held_out = reader.read(0, 6_000), reader.read(features.n_train, features.n_train + 4_000)
    used = np.unique(train.ids)
    n = features.n_table_row
    model = LogisticRegression(max_iter=60, C=0.3, solver="liblinear")
    model.fit(np.delete(one_hot(train, n), np.setdiff1d(np.arange(n), used), axis=1), train.labels)
    x = np.delete(one_hot(held_out, n), np.setdiff1d(np.arange(n), used), axis=1)
    assert roc_auc_score(held_out.labels, model.predict_proba(x)[:, 1]) > 0.9


def test_the_census_rows_are_those_described() -> None:
    features = make_features(DataSpec(), MODEL)
    assert (features.n_train, features.n_eval) == (99_000, 11_000)
    assert [c.name for c in features.numeric] == [
        "age",
        "wage_per_hour",
        "capital_gains",
        "capital_losses",
        "dividends",
        "num_persons_employer",
        "weeks_worked",
    ]
    assert len(features.categorical) == 33
    assert {"industry_code", "year"} < {c.name for c in features.categorical}


@pytest.mark.more
@settings(deadline=None, max_examples=25)
@given(st.tuples(st.integers(0, 500), st.integers(0, 500)), st.integers(1, 200))
def test_a_range_reads_the_same_as_its_rows_read_one_range_after_the_other(
    tmp_path_factory: pytest.TempPathFactory, ends: tuple[int, int], group: int
) -> None:
    path = parquet(tmp_path_factory.mktemp("rows"), click_table(500), row_group_size=group)
    data = spec(path)
    reader = ShardReader(data, make_features(data, MODEL))
    whole, (start, stop) = reader.read(0, 500), sorted(ends)
    part = reader.read(start, stop)
    np.testing.assert_array_equal(part.ids, whole.ids[start:stop])
    np.testing.assert_array_equal(part.dense, whole.dense[start:stop])
    np.testing.assert_array_equal(part.labels, whole.labels[start:stop])
    assert (part.ids.dtype, part.dense.dtype, part.labels.dtype) == (np.int64, np.float32, np.float32)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.data())
def test_row_groups_of_any_size_even_empty_ones_read_as_one_file(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], draw: st.DataObject
) -> None:
    sizes = [*sizes, 1]
    n = sum(sizes)
    rows = pa.table({"click": [i % 2 for i in range(n)], "x": [float(i) for i in range(n)]})
    path = tmp_path_factory.mktemp("groups") / "rows.parquet"
    with pq.ParquetWriter(path, rows.schema) as writer:
        for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False):
            writer.write_table(rows.slice(start, size))
    source = open_source(spec(str(path)))
    start, stop = sorted((draw.draw(st.integers(0, n)), draw.draw(st.integers(0, n))))
    assert source.read(start, stop, ["x"])["x"].to_pylist() == [float(i) for i in range(start, stop)]


def test_columns_share_one_table_without_overlap(tmp_path: Path) -> None:
    data = spec(parquet(tmp_path, click_table(300)))
    features = make_features(data, MODEL)
    offsets = np.cumsum([0, *(c.hash_size for c in features.categorical)])
    assert [c.offset for c in features.categorical] == offsets[:-1].tolist()
    ids = ShardReader(data, features).read(0, 300).ids
    assert ((ids >= offsets[:-1]) & (ids < offsets[1:])).all()


def test_hashed_ids_have_no_table_and_differ_from_column_to_column(tmp_path: Path) -> None:
    values = [f"v{i % 90}" for i in range(300)]
    path = parquet(tmp_path, {"click": [i % 2 for i in range(300)], "site": values, "other": values})
    features = make_features(spec(path), ModelSpec(embedding=Embedding.HASH))
    assert features.n_table_row == 0
    ids = ShardReader(spec(path), features).read(0, 300).ids
    assert ids.min() >= 0
    assert ids.max() > 1 << 60
    assert len(np.unique(ids)) == 180
    np.testing.assert_array_equal(ids[:90], ids[90:180])
    alone = make_features(spec(path, categorical=("other",)), ModelSpec(embedding=Embedding.HASH))
    np.testing.assert_array_equal(ShardReader(spec(path), alone).read(0, 300).ids[:, 0], ids[:, 1])


def test_columns_are_told_apart_by_type(tmp_path: Path) -> None:
    features = make_features(spec(parquet(tmp_path, click_table(300)), exclude=("user",)), MODEL)
    assert [c.name for c in features.numeric] == ["price", "age"]
    assert [c.name for c in features.categorical] == ["site", "device"]


def test_named_columns_alone_are_used(tmp_path: Path) -> None:
    features = make_features(
        spec(parquet(tmp_path, click_table(300)), numeric=("age",), categorical=("user",)), MODEL
    )
    assert [c.name for c in features.numeric] == ["age"]
    assert [(c.name, c.hash_size) for c in features.categorical] == [("user", MODEL.hash_size)]


def hashed(column: pa.ChunkedArray) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    values, codes = distinct(column)
    return hashes_of(values, CategoricalColumn("c", 0, 0)), codes


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 400), st.integers(1, 12))
def test_a_closed_vocabulary_gets_a_small_table_and_does_not_collide(n_value: int, repeat: int) -> None:
    hashes, codes = hashed(pa.chunked_array([[f"v{i}" for i in range(n_value)] * (repeat + 1)]))
    size = table_size(hashes, codes, 1 << 20)
    assert size & (size - 1) == 0
    assert ROOM * (n_value + 1) <= size <= max(128 * (n_value + 1), SMALL_TABLE)
    collisions = len(hashes) - np.unique(hashes % np.uint64(size)).size
    assert collisions <= 0.02 * len(hashes) + (n_value > 30)


def test_an_open_vocabulary_gets_the_table_that_the_model_asks_for() -> None:
    hashes, codes = hashed(pa.chunked_array([list(range(1000))]))
    assert table_size(hashes, codes, 4096) == 4096
    assert table_size(*hashed(pa.chunked_array([[1, 2, 3] * 50])), 16) == 16


def refusal(data: DataSpec) -> str:
    with pytest.raises(DlroverError) as caught:
        make_features(data, MODEL)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = str(tmp_path / "nowhere.parquet")
    with pytest.raises(NotFoundError, match="check the path"):
        make_features(spec(path), MODEL)
    assert path in refusal(spec(path))
    assert "no parquet files at" in refusal(spec(str(tmp_path)))


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    for content in (b"", b"label,x\n1,2\n" * 20):
        path.write_bytes(content)
        assert "is not a Parquet file" in refusal(spec(str(path)))


def test_a_wrong_column_brings_the_nearest_one_and_the_list(tmp_path: Path, words) -> None:
    path = parquet(tmp_path, click_table(10))
    text = refusal(DataSpec(DataFormat.PARQUET, path, label="clicks"))
    assert text == words
    assert "price, age, site" in text
    assert "'sites'" in refusal(spec(path, categorical=("sites",)))
    assert "'nope'" in refusal(spec(path, exclude=("nope",)))


@for_each(
    ("options", "part"),
    [
        ({"numeric": ("site",)}, "'site' must hold numbers written with decimal '.', got 'site"),
        ({"types": ("device=number",)}, "'device' must hold numbers written with decimal '.', got 'd"),
        ({"types": ("nope=number",)}, "no column 'nope'"),
        ({"types": ("click=number",)}, "the label 'click' has no type"),
        ({"types": ("age=number",), "exclude": ("age",)}, "'age' is in types and in exclude"),
        (
            {"types": ("age=category",), "numeric": ("age",)},
            "'age' is category in types, but named in numeric",
        ),
        (
            {"types": ("age=number",), "categorical": ("site",)},
            "'age' has a type, but numeric and categorical",
        ),
        ({"types": ("age=time",)}, "'age' holds numbers, expected times; types: {age: number} takes them"),
        ({"types": ("site=time",)}, "'site' has the type time, as text such as 2026-01-31 12:30"),
        ({"categorical": ("tags",)}, "'tags' holds structures, lists of fractions"),
        ({"numeric": ("age",), "categorical": ("age",)}, "'age' is named twice"),
        ({"numeric": ("click",)}, "'click' is named twice"),
        ({"exclude": ("price", "age", "site", "device", "user")}, "leaves no column to train on"),
        ({"holdout": 0.99}, "holdout 0.99 leaves none of 10 rows"),
    ],
)
def test_a_wrong_use_of_columns_is_refused(tmp_path: Path, options: dict[str, Any], part: str) -> None:
    assert part in refusal(spec(parquet(tmp_path, click_table(10)), **options))


def test_a_file_without_rows_is_refused(tmp_path: Path) -> None:
    assert "has no rows" in refusal(spec(parquet(tmp_path, click_table(1).slice(1))))


def test_a_label_that_is_no_label_is_refused_at_submit_and_while_reading(
    tmp_path: Path, error_words, words
) -> None:
    path = parquet(tmp_path, click_table(10))
    assert refusal(DataSpec(DataFormat.PARQUET, path, label="age")) == words
    late = click_table(20_010).to_pydict()
    late["click"][20_005] = 3
    data = spec(parquet(tmp_path, late))
    reader = ShardReader(data, make_features(data, MODEL))
    with error_words(InvalidValueError):
        reader.read(20_000, 20_010)


def test_rows_that_are_not_there_are_refused(tmp_path: Path, error_words) -> None:
    data = spec(parquet(tmp_path, click_table(10)))
    features = make_features(data, MODEL)
    reader = ShardReader(data, features)
    for start, stop in ((-1, 3), (5, 4), (0, 11)):
        with error_words(InvalidValueError):
            reader.read(start, stop)
    parquet(tmp_path, click_table(9))
    with error_words(InvalidValueError):
        ShardReader(data, features).read(0, 9)


def test_missing_values_become_the_mean_and_a_category(tmp_path: Path) -> None:
    table = {"click": [0, 1, 1], "x": [1.0, None, float("nan")], "c": ["a", None, "a"]}
    data = spec(parquet(tmp_path, table), holdout=0.0)
    batch = ShardReader(data, make_features(data, MODEL)).read(0, 3)
    assert batch.dense[1:, 0].tolist() == [0, 0]
    assert batch.ids[0, 0] == batch.ids[2, 0] != batch.ids[1, 0]
