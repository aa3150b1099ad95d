"""The same rows have the same scores bit for bit in every form that a model takes, or the form is refused.

A form is a way to hold rows: files of text and of types, and tables in memory with other widths of numbers,
units of time and layouts of text. A model is trained on each, and scores all others.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.client.trained_model import TrainedModel
from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import encode_inputs
from dlrover_nb.core.data.objects.arrow_tables import as_table
from dlrover_nb.core.data.objects.stored import store_rows
from dlrover_nb.core.data.types.agreement import written_types
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.rundir.same_model import encoded_as
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.data.features import CategoricalColumn, SequenceSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding
from dlrover_nb.core.structs.job.trained import Trained

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from dlrover_nb.core.structs.data.features import FeatureSpec

N_ROW = 300
MODEL = ModelSpec(embedding_dim=4, hidden=(8,), embedding=Embedding.HASH)
IDS = ("user", "guest", "zip", "code", "flag", "site", "country")
NUMBERS = ("price", "age", "at", "day")


def rows(seed: int = 0) -> pd.DataFrame:
    """Return rows whose ids and numbers are of every kind that files write in several ways."""
    rng = np.random.default_rng(seed)
    user = rng.integers(10**15, 10**18, N_ROW)
    frame = pd.DataFrame(
        {
            "label": rng.integers(0, 2, N_ROW),
            "user": user,
            "guest": [str(i) if i % 50 else "guest" for i in rng.integers(1, 400, N_ROW)],
            "zip": [f"{i:05}" for i in rng.integers(0, 99_999, N_ROW)],
            "code": rng.integers(0, 30, N_ROW).astype(float),
            "flag": rng.integers(0, 2, N_ROW) == 1,
            "site": [f'say "{i}",\nor not' for i in rng.integers(0, 9, N_ROW)],
            "country": rng.choice(["NA", "DE", "", "FR"], N_ROW),
            "price": rng.normal(0, 9, N_ROW).round(3),
            "age": rng.integers(0, 99, N_ROW),
            "at": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 10**7, N_ROW), unit="s"),
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, N_ROW), unit="D"),
        }
    )
    frame.loc[::7, ["code", "price", "site"]] = None
    return frame


def text(write: Callable[[pd.DataFrame, Path], object]) -> Callable[[pd.DataFrame, Path], Any]:
    def made(frame: pd.DataFrame, folder: Path) -> Path:
        path = folder / f"{len(list(folder.iterdir()))}.csv"
        write(frame, path)
        return path

    return made


def parquet(frame: pd.DataFrame, folder: Path) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.parquet"
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=70)
    return path


def cast(**types: pa.DataType) -> Callable[[pd.DataFrame, Path], pa.Table]:
    def made(frame: pd.DataFrame, _: Path) -> pa.Table:
        table = pa.Table.from_pandas(frame, preserve_index=False)
        for name, kind in types.items():
            i = table.column_names.index(name)
            table = table.set_column(i, name, table.column(name).cast(kind))
        return table

    return made


def unit(name: str) -> Callable[[pd.DataFrame, Path], pd.DataFrame]:
    return lambda frame, _: frame.astype(dict.fromkeys(("at", "day"), f"datetime64[{name}]"))


def of_columns(frame: pd.DataFrame, _: Path) -> dict[str, Any]:
    return {name: frame[name].to_numpy() for name in frame.columns}


class Exporting:
    """A table of a library that exports Arrow data, as polars does: its text is in views."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


FORMS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "csv of pandas": text(lambda frame, path: frame.to_csv(path, index=False)),
    "csv of Arrow": text(lambda frame, path: pacsv.write_csv(pa.Table.from_pandas(frame), path)),
    "parquet": parquet,
    "seconds": unit("s"),
    "milliseconds": unit("ms"),
    "microseconds": unit("us"),
    "nanoseconds": unit("ns"),
    "columns": of_columns,
    "arrow": cast(),
    "narrow": cast(age=pa.int8(), day=pa.date32(), user=pa.uint64(), site=pa.large_string()),
    "nullable": lambda frame, _: frame.astype({"user": "Int64", "code": "Int64", "flag": "boolean"}),
    "categories": lambda frame, _: frame.astype(dict.fromkeys(("user", "site", "guest"), "category")),
    "all text": lambda frame, _: frame.astype(dict.fromkeys(("zip", "guest", "at"), str)),
    "exporting": lambda frame, folder: Exporting(
        cast(guest=pa.string_view(), site=pa.string_view())(frame, folder)
    ),
}


def trained_on(
    data: Any,
    folder: Path,
    ids: tuple[str, ...],
    numbers: tuple[str, ...],
    sequences: tuple[SequenceSpec, ...] = (),
) -> TrainedModel:
    """Return a model with random parameters whose encoding was made of these rows."""
    stored = data if hasattr(data, "suffix") else store_rows(data, folder / "rows")
    kind = DataFormat.CSV if stored.suffix == ".csv" else DataFormat.PARQUET
    spec = DataSpec(kind, str(stored), categorical=ids, numeric=numbers, holdout=0.0, sequences=sequences)
    features = make_features(spec, MODEL)
    n_dense = dense_parameter_count(MODEL, len(features.categorical), len(numbers))
    store = ParameterStore(MODEL, 0, n_dense)
    store.init_dense(np.random.default_rng(1).normal(0, 1, n_dense).astype(np.float32))
    return TrainedModel(JobSpec("x", data=spec, model=MODEL), features, store, folder)


def refused(model: TrainedModel, data: Any) -> str:
    with pytest.raises(InvalidValueError) as refusal:
        model.predict(data)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


@pytest.fixture
def frame() -> pd.DataFrame:
    return rows()


@pytest.fixture
def of_text(tmp_path: Path, frame: pd.DataFrame) -> TrainedModel:
    """Return a model that was trained on the rows as a CSV file."""
    return trained_on(FORMS["csv of pandas"](frame, tmp_path), tmp_path, IDS, NUMBERS)


@pytest.mark.parametrize("trained", [name for name in FORMS if name != "all text"])
def test_every_form_scores_as_the_one_that_was_trained_on(
    tmp_path: Path, frame: pd.DataFrame, trained: str
) -> None:
    folder = tmp_path / "forms"
    folder.mkdir()
    forms = {name: make(frame, folder) for name, make in FORMS.items()}
    model = trained_on(forms[trained], tmp_path, IDS, NUMBERS)
    want = model.predict(forms[trained])
    assert len(np.unique(want)) > N_ROW * 0.9, "a score must depend on the row"
    for name, data in forms.items():
        assert np.array_equal(model.predict(data), want), name


@for_each("column", [*IDS, *NUMBERS])
def test_scores_depend_on_every_column(of_text: TrainedModel, frame: pd.DataFrame, column: str) -> None:
    others = frame.assign(**{column: frame[column].iloc[::-1].to_numpy()})
    assert not np.array_equal(of_text.predict(others), of_text.predict(frame))


def test_a_file_as_pandas_reads_it_scores_as_the_file_once_its_zeros_are_kept(
    of_text: TrainedModel, tmp_path: Path, frame: pd.DataFrame
) -> None:
    path = FORMS["csv of pandas"](frame, tmp_path)
    want = of_text.predict(path)
    words = refused(of_text, pd.read_csv(path))
    assert "column 'zip' was text in training, got int64" in words
    assert "dtype={'zip': str}" in words
    readings: tuple[dict[str, Any], ...] = (
        {},
        {"parse_dates": ["at", "day"]},
        {"keep_default_na": False, "na_values": {"price": [""], "code": [""]}},
    )
    for options in readings:
        assert np.array_equal(of_text.predict(pd.read_csv(path, dtype={"zip": str}, **options)), want)


def test_ids_of_one_file_are_those_of_the_next_whatever_stands_beside_them(
    of_text: TrainedModel, tmp_path: Path, frame: pd.DataFrame
) -> None:
    digits = frame["guest"] != "guest"
    assert not digits.all()
    alone = frame[digits].reset_index(drop=True)
    want = of_text.predict(alone)
    np.testing.assert_allclose(want, of_text.predict(frame)[digits], rtol=1e-3)  # sums of another order
    for name in ("csv of pandas", "csv of Arrow", "parquet", "arrow"):
        assert np.array_equal(of_text.predict(FORMS[name](alone, tmp_path)), want), name
    assert np.array_equal(of_text.predict(alone.astype({"guest": "int64"})), want)


def test_a_job_that_begins_from_a_model_reads_its_rows_in_the_types_of_that_model(
    of_text: TrainedModel, tmp_path: Path, frame: pd.DataFrame
) -> None:
    digits = frame[frame["guest"] != "guest"].astype({"guest": "int64"}).reset_index(drop=True)
    spec = replace(of_text.spec.data, categorical=tuple(name for name in IDS if name != "zip"))
    model = trained_on(FORMS["csv of pandas"](frame, tmp_path), tmp_path, spec.categorical, NUMBERS)
    want = encode_inputs(as_table(digits), model.features)
    for name in ("csv of pandas", "parquet"):
        data = replace(spec, path=str(FORMS[name](digits, tmp_path)), format=DataFormat(name.split()[0]))
        features = encoded_as(Trained(MODEL, spec, model.features), make_features(data, MODEL))
        batch = ShardReader(data, features).read(0, len(digits))
        assert np.array_equal(batch.ids, want[0]), name
        assert np.array_equal(batch.dense, want[1]), name


@for_each(
    ("column", "change", "words"),
    [
        ("zip", lambda x: x.astype("int64"), "was text in training, got int64 such as"),
        ("site", lambda x: x.notna().astype(int), "was text in training, got int64"),
        ("site", lambda x: x.notna(), "was text in training, got bool"),
        ("guest", lambda x: pd.to_datetime(x.str.len()), "was text in training, got timestamp"),
        ("user", lambda x: x.astype("float64"), r"ids from 2\^53 on as double, which rounds them"),
        (
            "at",
            lambda x: x.astype("int64"),
            r"was timestamp\[s\] in training, got int64 .* pandas.to_datetime",
        ),
        ("at", lambda x: x.dt.tz_localize("UTC"), "give its times without a zone"),
        ("at", lambda x: x.dt.strftime("%d/%m/%Y"), "got the text '.*'; write it as in training"),
        ("at", lambda x: pd.to_timedelta(x.astype("int64")), "got duration"),
        ("age", lambda _: "young", "must hold numbers written with decimal '.', got 'young' in row 0"),
        ("age", pd.to_datetime, "was double in training, got timestamp"),
        ("age", lambda x: [[i] for i in x], "was double in training, got list"),
        ("user", lambda x: [[i] for i in x], "was text in training, got list"),
    ],
)
def test_what_cannot_be_read_as_in_training_is_refused_with_what_to_do(
    of_text: TrainedModel, frame: pd.DataFrame, column: str, change: Callable[[Any], Any], words: str
) -> None:
    text = refused(of_text, frame.assign(**{column: change(frame[column])}))
    assert re.search(rf"column '{column}' .*{words}", text), text


def test_a_column_without_a_value_is_missing_whatever_its_type(
    of_text: TrainedModel, tmp_path: Path, frame: pd.DataFrame
) -> None:
    for column in (*IDS, *NUMBERS):
        nothing = [np.full(N_ROW, np.nan), pd.Series([None] * N_ROW, dtype=object), [""] * N_ROW]
        want, *others = [of_text.predict(frame.assign(**{column: values})) for values in nothing]
        assert all(np.array_equal(other, want) for other in others), column
        path = FORMS["csv of pandas"](frame.assign(**{column: np.nan}), tmp_path)
        assert np.array_equal(of_text.predict(path), want), column


LISTS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "text": text(
        lambda frame, path: frame.assign(history=frame["history"].map(_written)).to_csv(path, index=False)
    ),
    "parquet": parquet,
    "frame": lambda frame, _: frame,
    "columns": lambda frame, _: frame.to_dict("list"),
    "arrays": lambda frame, _: frame.assign(history=frame["history"].map(np.array)),
    "narrow": cast(history=pa.list_(pa.int32()), item=pa.int16()),
    "large": cast(history=pa.large_list(pa.uint64())),
    "texts": cast(history=pa.list_(pa.string()), item=pa.string()),
    "views": cast(history=pa.large_list(pa.string_view()), item=pa.string_view()),
    "fractions": cast(history=pa.list_(pa.float64()), item=pa.float64()),
}


def _written(items: list[int]) -> str:
    return "|".join(map(str, items))


def histories() -> pd.DataFrame:
    """Return rows with the items that their user clicked, none or more than a sequence takes."""
    rng = np.random.default_rng(2)
    lists = [rng.integers(0, 60, n).tolist() for n in rng.integers(0, 9, N_ROW)]
    return pd.DataFrame(
        {
            "label": rng.integers(0, 2, N_ROW),
            "item": rng.integers(0, 60, N_ROW),
            "price": rng.normal(0, 1, N_ROW).round(3),
            "history": lists,
        }
    )


@pytest.mark.parametrize("trained", LISTS)
def test_histories_score_alike_in_every_form(tmp_path: Path, trained: str, words) -> None:
    frame, folder = histories(), tmp_path / "forms"
    folder.mkdir()
    forms = {name: make(frame, folder) for name, make in LISTS.items()}
    sequences = (SequenceSpec("history", 5, embedding_of="item"),)
    model = trained_on(forms[trained], tmp_path, ("item",), ("price",), sequences)
    want = model.predict(forms[trained])
    assert len(np.unique(want)) > N_ROW * 0.9, "a score must depend on the row"
    for name, data in forms.items():
        assert np.array_equal(model.predict(data), want), name
    older = frame.assign(history=[[9, 9, *items] if len(items) >= 5 else items for items in frame["history"]])
    assert np.array_equal(model.predict(older), want), "only the newest items count"
    assert not np.array_equal(
        model.predict(frame.assign(history=frame["history"].map(reversed).map(list))), want
    )
    for i in (0, int(frame["history"].map(len).argmin())):
        alone = model.predict(frame[i : i + 1])
        row = frame.iloc[i]
        for same in (row, row.to_dict(), {**row.to_dict(), "history": tuple(row["history"])}):
            assert np.array_equal(model.predict(same), alone)
    assert refused(model, frame.assign(history=1)) == words
    assert "column 'item'" in refused(model, frame.assign(item=frame["history"]))


CELLS = st.sampled_from(
    ["0", "7", "007", "-3", "+3", "7.0", "1.5", "1.50", "1e3", "123456789012345678", "NA", "", "nan",
     "True", "true", "guest", " 7", "2024-01-01", "é", "0x1"]
)  # fmt: skip


@pytest.mark.more
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trained=st.lists(CELLS, min_size=2, max_size=12), scored=st.lists(CELLS, min_size=1, max_size=12))
def test_any_cells_are_the_same_ids_in_files_and_in_tables_or_refused(
    trained: list[str], scored: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("cells")
    path, other = folder / "trained.csv", folder / "scored.csv"
    path.write_text("label,x,c\n" + "".join(f"{i % 2},1,{cell}\n" for i, cell in enumerate(trained)))
    other.write_text("label,x,c\n" + "".join(f"1,1,{cell}\n" for cell in scored))
    model = trained_on(path, folder, ("c",), ("x",))
    want = model.predict(other)
    assert np.array_equal(model.predict(pd.read_csv(other, dtype={"c": str})), want)
    assert np.array_equal(model.predict(pa.table({"x": [1] * len(scored), "c": scored})), want)
    if set(scored) <= {"0", "7", "-3", "123456789012345678"}:  # numbers lose nothing of these
        try:
            assert np.array_equal(model.predict(pd.read_csv(other)), want)
        except InvalidValueError as refusal:
            assert "was text in training" in str(refusal)  # noqa: PT017 - either is right


OLD_IDS = ("user", "code", "flag", "day", "site")
OLD_TYPES = {
    "user": pa.int64(),
    "code": pa.float64(),
    "flag": pa.bool_(),
    "day": pa.date32(),
    "site": pa.string(),
    "label": pa.float64(),
}
OLD_ROWS = [
    [927838324578837744, 3027450389341634119, 4832908070889823129, 5005900134078502347, 8834116166347784436],
    [3007184118737893336, 6823655824925647735, 4527375484253618896, 811259066410827207, 2950510060079462702],
    [4396223836083668768, 4632604528862707762, 5822060992109559721, 7146477065780186747, 8834116166347784436],
]


def test_models_of_earlier_releases_score_as_they_did(tmp_path: Path) -> None:
    # the types that release 0.1 took of these three rows, and the ids that it made of them
    path = tmp_path / "rows.csv"
    path.write_text(
        "label,user,code,flag,day,site\n1,12,1.5,True,2024-01-01,NA\n0,007,12.0,False,2024-01-02,b\n1,,,,,\n"
    )
    data = DataSpec(DataFormat.CSV, str(path), categorical=OLD_IDS, holdout=0.0)

    def as_then() -> FeatureSpec:
        categorical = tuple(CategoricalColumn(name, 0, 0) for name in OLD_IDS)
        types = written_types(OLD_TYPES, OLD_TYPES)
        return replace(
            make_features(data, MODEL), categorical=categorical, column_types=types, trained_types=""
        )

    assert ShardReader(data, as_then()).read(0, 3).ids.tolist() == OLD_ROWS
    read = pd.read_csv(path, parse_dates=["day"])
    assert encode_inputs(as_table(read), as_then())[0].tolist() == OLD_ROWS
    with path.open("a") as file:  # texts that ended the job then
        file.write("1,guest,x,maybe,2024-01-03,c\n1,12,1.5,True,2024-01-01,NA\n")
    ids = ShardReader(data, as_then()).read(0, 5).ids.tolist()
    assert ids[:3] == OLD_ROWS
    assert ids[4] == OLD_ROWS[0]
    assert not set(ids[3]) & set(np.ravel(OLD_ROWS).tolist())


def test_one_row_scores_as_the_same_row_of_a_table(of_text: TrainedModel, frame: pd.DataFrame, words) -> None:
    want = of_text.predict(frame[1:2])
    row = frame.iloc[1]
    for same in (row, row.to_dict(), {**row.to_dict(), "note": None}):
        assert np.array_equal(of_text.predict(same), want)
    assert "a Series; use .to_frame()" in refused(of_text, frame["user"])
    assert refused(of_text, 3) == words


def test_tables_are_taken_as_a_submit_takes_them(of_text: TrainedModel, frame: pd.DataFrame) -> None:
    want = of_text.predict(frame)
    mixed = frame.assign(note=[1, "a"] * (N_ROW // 2))  # not needed, and of no one type
    mixed.columns = pd.Index([*frame.columns, 7])
    for same in (frame.set_index("user"), frame.set_index(["user", "zip"]), mixed, dict(frame.items())):
        assert np.array_equal(of_text.predict(same), want)
    twice = pd.concat([frame, frame[["user"]]], axis=1)
    assert "two columns 'user'" in refused(of_text, twice)
