"""Rows in memory become one file that says the same, or one line that says why not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cases import for_each

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import encode_inputs
from dlrover_nb.core.data.objects.arrow_tables import as_table, is_table
from dlrover_nb.core.data.objects.stored import GROUP_ROWS, KEPT_S, store_rows
from dlrover_nb.core.disk.paths import jobs_folder
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pd.DataFrame({"label": [0, 1, 1], "site": ["a", None, "b"], "kind": pd.Categorical(["x", "y", "x"])})


@pytest.mark.parametrize(
    "rows",
    [FRAME, FRAME.iloc[::-1].iloc[::-1], FRAME.set_index("label"), pa.Table.from_pandas(FRAME)],
    ids=["frame", "view", "index", "arrow"],
)
def test_nothing_is_lost(tmp_path: Path, rows: Any) -> None:
    table = pq.read_table(store_rows(rows, tmp_path / "rows"))
    assert table.to_pylist() == pa.Table.from_pandas(FRAME, preserve_index=False).to_pylist()


def test_a_mapping_of_columns_is_a_table(tmp_path: Path) -> None:
    path = store_rows({"label": [0, 1], "site": ["a", "b"], "x": np.eye(2)}, tmp_path)
    assert pq.read_table(path).to_pydict() == {
        "label": [0, 1], "site": ["a", "b"], "x.0": [1.0, 0.0], "x.1": [0.0, 1.0]
    }  # fmt: skip


def test_the_same_rows_are_the_same_file_and_others_another(tmp_path: Path) -> None:
    first = store_rows(FRAME, tmp_path)
    assert store_rows(FRAME.copy(), tmp_path) == first
    assert store_rows(FRAME.assign(label=1), tmp_path) != first
    assert len(list(tmp_path.iterdir())) == 2
    assert first.stat().st_mode & 0o777 == 0o600


def test_large_tables_are_written_in_groups_that_shards_read(tmp_path: Path) -> None:
    path = store_rows({"label": np.zeros(GROUP_ROWS + 1)}, tmp_path)
    assert pq.ParquetFile(path).num_row_groups == 2


@for_each(
    ("rows", "message"),
    [
        (FRAME.rename(columns={"site": 0}), "column names must be text, got 0; rename them"),
        (FRAME.set_axis(["a", "a", "b"], axis=1), "two columns 'a'"),
        (FRAME.rename_axis("site"), "two columns 'site'"),
        (FRAME.assign(mixed=[1, "a", 2.5]), "column 'mixed' holds values of several types.*astype\\(str\\)"),
        (FRAME.assign(own=[object()] * 3), "column 'own' holds values of several types, or of none that"),
        (FRAME["label"], "expected a DataFrame, got a Series; use .to_frame"),
        (FRAME[:0], "the rows are none; give a table with data"),
        ({"label": [0, 1], "a": [1]}, "the columns are no table.*give them one length"),
        ({1: [0, 1]}, "column names must be text, got 1"),
    ],
)
def test_what_is_no_table_is_one_line(tmp_path: Path, rows: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message) as caught:
        store_rows(rows, tmp_path)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_files_that_nothing_uses_any_more_are_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "rows"
    used, unused = (store_rows({"label": [i]}, folder) for i in (0, 1))
    for path in (used, unused):
        os.utime(path, (1.0, 1.0))
    run = jobs_folder() / "ads-20260101T000000-000"
    run.mkdir(parents=True)
    (run / "job.json").write_text(f'{{"path": "{used}"}}')
    recent = store_rows({"label": [2]}, folder, at_s=KEPT_S)
    assert unused.exists(), "it is not old enough"
    store_rows({"label": [2]}, folder, at_s=KEPT_S + 2.0)
    assert (used.exists(), unused.exists(), recent.exists()) == (True, False, True)


def test_classes_and_rows_of_ones_own_are_no_tables() -> None:
    assert not any(map(is_table, (pd.DataFrame, dict, {"a": 1}, [1], "rows.csv", None)))
    assert is_table(FRAME)
    assert is_table(pa.table({"a": [1]}))


def test_categories_of_pandas_are_ids_whatever_they_are_of(tmp_path: Path) -> None:
    n = 60
    frame = pd.DataFrame({"label": np.arange(n) % 2, "x": np.arange(n) / 7, "s": ["a", "b", "c"] * (n // 3)})
    frame = frame.assign(
        band=pd.cut(frame["x"], 4),
        edges=pd.arrays.IntervalArray.from_breaks(np.arange(n + 1)),
        code=pd.Categorical(np.arange(n) % 5),
        few=pd.arrays.SparseArray(np.arange(n) % 3),
    )
    path = store_rows(frame, tmp_path)
    data = DataSpec("parquet", str(path), holdout=0.0)
    features = make_features(data, ModelSpec())
    assert [column.name for column in features.categorical] == ["s", "band", "edges", "code"]
    assert [column.name for column in features.numeric] == ["x", "few"]
    batch = ShardReader(data, features).read(0, n)
    ids, dense = encode_inputs(as_table(frame), features)
    assert np.array_equal(batch.ids, ids)
    assert np.array_equal(batch.dense, dense)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    texts = pd.read_csv(tmp_path / "rows.csv", dtype={"code": str})
    assert np.array_equal(encode_inputs(as_table(texts), features)[0], ids)
