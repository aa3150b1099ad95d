"""What a submit tells of the data that it took, and what it warns of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data.formats.parquet import ParquetSource
from dlrover_nb.core.data.objects.own_source import OwnSource
from dlrover_nb.core.data.selection.inspection import N_PLACE, N_ROW, take_data
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.views.schema import DataSchema, Use

if TYPE_CHECKING:
    from pathlib import Path

N = 3000
RNG = np.random.default_rng(7)
PLAIN = {"label": np.arange(N) % 4 == 0, "age": RNG.integers(18, 90, N), "site": RNG.choice(["a", "b"], N)}


def taken(folder: Path, columns: dict[str, Any], **options: Any) -> DataSchema:
    path = folder / "rows.parquet"
    pq.write_table(pa.Table.from_pandas(pd.DataFrame(columns)), path, row_group_size=500)
    return take_data(DataSpec(DataFormat.PARQUET, str(path), **options), ModelSpec())[1]


def test_columns_rows_nulls_and_label_are_those_of_the_data(tmp_path: Path) -> None:
    price = np.where(np.arange(N) % 5 == 0, np.nan, 1.5)
    schema = taken(tmp_path, {**PLAIN, "price": price, "tags": [[0.5]] * N}, exclude=("age",))
    assert [(c.name, c.use, c.type, c.n_distinct) for c in schema.columns] == [
        ("label", Use.LABEL, "bool", 2),
        ("price", Use.NUMERIC, "double", 1),
        ("site", Use.CATEGORICAL, "string", 2),
    ]
    assert [c.missing for c in schema.columns] == [0, 0.2, 0]
    assert (schema.n_row, schema.n_train, schema.n_eval) == (N, 2700, 300)
    assert (schema.n_first, schema.n_spread, schema.positive) == (N, 0, 0.25)
    assert (schema.unused, schema.suggested) == (("age", "tags"), ())
    assert [text[:22] for text in schema.warnings] == ["column 'tags' left out"]


@for_each(
    ("name", "values", "message", "better"),
    [
        (
            "user_id",
            RNG.integers(0, 50, N),
            "column 'user_id' looks like ids, taken as numbers",
            "categorical",
        ),
        ("itemID", RNG.integers(0, 50, N).astype(float), "'itemID' looks like ids", "categorical"),
        ("zip", RNG.integers(0, 99999, N), "'zip' looks like ids", "categorical"),
        ("seat", RNG.permutation(10 * N)[:N], "looks like ids, another in nearly every row", "categorical"),
        (
            "u",
            2**60 + RNG.integers(0, 9, N),
            "'u' holds whole numbers from 2^53 on, as ids have",
            "categorical",
        ),
        ("rank", RNG.permutation(N), "'rank' holds each number up to that of the rows once, taken as", None),
        (
            "user",
            RNG.permutation(10 * N)[:N],
            "column 'user' looks like ids, taken as numbers",
            "categorical",
        ),
        ("day", 20_240_101 + RNG.integers(0, 28, N), "column 'day' holds times, taken as one number", None),
        ("row", np.arange(N) + 7, "column 'row' counts the rows, taken as a number; exclude it", None),
        ("day", pd.date_range("2024", periods=N, freq="h"), "'day' holds times, taken as one number", None),
        ("click_time", 1_700_000_000 + RNG.integers(0, 9999, N), "'click_time' holds times", None),
        ("seenAt", (1_700_000_000 + RNG.integers(0, 9999, N)) * 1000, "'seenAt' holds times", None),
        ("seen", ["2024-02-03 10:00"] * N, "'seen' holds times as text, each an id of its own", None),
        (
            "paid",
            [f"{i},50" for i in range(N)],
            'types: {paid: number} with decimal: "," reads them, types: {paid: category} keeps ids',
            "number",
        ),
        (
            "paid",
            [f"{i % 9 + 1},{i:03}" for i in range(N)],
            'with decimal: "," or thousands: "," reads',
            "number",
        ),
        ("paid", [f"1.{i % 9}00,5" for i in range(N)], 'with decimal: ",", thousands: "." reads', "number"),
        (
            "rate",
            [f"{i / 2}%" for i in range(N)],
            "'0.0%', each text an id of its own; types: {rate",
            "number",
        ),
        ("paid", [f"${i}" for i in range(N)], "types: {paid: number} reads them, types: {paid: c", "number"),
        ("paid", [f"{i} EUR" for i in range(N)], "'paid' holds numbers written as '0 EUR'", "number"),
        ("paid", [f"({i})" for i in range(N)], "'paid' holds numbers written as '(0)'", "number"),
        (
            "age2",
            ["?" if i % 9 else str(i) for i in range(N)],
            "'age2' holds numbers and '?', each",
            "number",
        ),
        ("day", [f"{i % 28 + 1} Jan 2024" for i in range(N)], "'day' holds times as text, each an id", None),
        ("empty", np.full(N, np.nan), "'empty' has no value in the rows that were looked at", None),
    ],
)
def test_what_looks_like_a_mistake_is_said_with_the_columns_to_use(
    tmp_path: Path, name: str, values: Any, message: str, better: str | None
) -> None:
    schema = taken(tmp_path, {**PLAIN, name: values})
    (warning,) = schema.warnings
    assert message in warning
    suggested = dict(schema.suggested)
    if better != "number":
        assert suggested == ({"types": (f"{name}=category",)} if better else {"exclude": (name,)})
    else:  # which form it is, nobody but the user knows
        assert suggested == {}
        suggested = {"types": (f"{name}=category",)}
    followed = taken(tmp_path, {**PLAIN, name: values}, **suggested)
    assert followed.warnings == ()
    there = {column.name for column in followed.columns}
    assert there == {"label", "age", "site"} | ({name} if better else set()), "other columns stay"


@for_each(
    ("name", "values"),
    [
        ("price", RNG.normal(0, 1, N)),
        ("paid", RNG.integers(0, 500, N)),
        ("valid", RNG.integers(0, 2, N)),
        ("time", RNG.integers(0, 86_400, N)),
        ("amount", RNG.permutation(10 * N)[:N] + 0.5),
        ("code", RNG.choice(["x", "y"], N)),
        ("n_id", RNG.integers(0, 50, N)),
        ("users", RNG.integers(0, 50, N)),
        ("took", pd.to_timedelta(RNG.integers(0, 50, N), unit="s")),
        ("code2", ["?" if i % 9 else str(i % 4) for i in range(N)]),
        ("sizes", [f"{i},{i % 7},{i % 3}" for i in range(N)]),
        ("version", [f"{i}.{i % 7}.1" for i in range(N)]),
        ("zip", [f"{i:05}" for i in range(N)]),
    ],
)
def test_numbers_are_not_taken_for_ids_or_times(tmp_path: Path, name: str, values: Any) -> None:
    assert taken(tmp_path, {**PLAIN, name: values}).warnings == ()


@for_each(("key", "kind"), [("categorical", "category"), ("numeric", "number")])
def test_columns_that_one_key_leaves_out_are_named_with_the_key_that_types_one_alone(
    tmp_path: Path, key: str, kind: str, words
) -> None:
    name = {"categorical": "site", "numeric": "age"}[key]
    other = {"site": "age", "age": "site"}[name]
    (warning,) = taken(tmp_path, PLAIN, **{key: (name,)}).warnings
    assert warning == words
    alone = taken(tmp_path, PLAIN, types=(f"{name}={kind}",))
    assert alone.warnings == ()
    assert {column.name for column in alone.columns} == {*PLAIN}
    assert taken(tmp_path, PLAIN, **{key: (name,)}, exclude=(other,)).warnings == ()


def test_infinite_numbers_are_said_to_be_taken_for_missing(tmp_path: Path, words) -> None:
    values = np.where(np.arange(N) % 3 == 0, np.inf, 1.5)
    (warning,) = taken(tmp_path, {**PLAIN, "x": values}).warnings
    assert warning == words


@pytest.mark.parametrize(("label", "message"), [(0, "is 0 in all rows"), (1, "is 1 in all rows")])
def test_a_label_of_one_class_is_said(tmp_path: Path, label: int, message: str) -> None:
    (warning,) = taken(tmp_path, {**PLAIN, "label": np.full(N, label)}).warnings
    assert message in warning


def test_the_census_is_free_of_warnings() -> None:
    schema = take_data(DataSpec(), ModelSpec())[1]
    assert schema.warnings == ()
    assert schema.n_spread == N_PLACE * N_ROW


@settings(max_examples=25, deadline=None)
@given(group=st.integers(50, 900), after=st.integers(0, 4000), n_group=st.integers(1, 9))
def test_heads_of_row_groups_are_the_rows_that_lie_there(
    group: int, after: int, n_group: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("heads") / "rows.parquet"
    pq.write_table(pa.table({"x": range(3000), "y": ["a"] * 3000}), path, row_group_size=group)
    heads = list(ParquetSource(path).heads(n_group, 40, ("y", "x"), after=after))
    assert len(heads) <= n_group
    assert bool(heads) == (after <= (3000 - 1) // group * group)
    for start, rows in heads:
        assert start >= after
        assert rows.column("x").to_pylist() == list(range(start, min(start + 40, start + group, 3000)))


def test_a_wrong_label_far_behind_is_found_at_the_submit(tmp_path: Path, error_words) -> None:
    n = 60_000
    path = tmp_path / "rows.csv"
    pd.DataFrame({"label": np.where(np.arange(n) == n - 512, 3, 1), "a": 1.5}).to_csv(path, index=False)
    with error_words(InvalidValueError):
        take_data(DataSpec(DataFormat.CSV, str(path)), ModelSpec())


class Asked:
    """Rows that remember what was asked of them."""

    n_row = 1_000_000
    asked: tuple[tuple[int, int], ...] = ()

    def read(self, start: int, stop: int) -> dict[str, Any]:
        Asked.asked += ((start, stop),)
        return {"label": np.arange(start, stop) % 2, "x": np.ones(stop - start)}


def test_of_a_users_own_object_only_the_first_rows_are_read() -> None:
    code = f"{__name__}:Asked"
    schema = take_data(DataSpec(DataFormat.OWN, code), ModelSpec())[1]
    assert OwnSource(code, None).n_row == schema.n_row == 1_000_000
    assert max(stop for _, stop in Asked.asked) == schema.n_first == 20_000
