"""Columns that no key names: ids are ids, dates and row numbers are left out, and each is said before the start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cases import for_each

from dlrover_nb.core.client.submit_again import submit_command
from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.formats.criteo import COLUMNS
from dlrover_nb.core.data.selection.column_choice import N_SAMPLE_ROW
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.jobfile import job_from
from dlrover_nb.core.rundir.same_model import differences
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.trained import Trained
from dlrover_nb.core.structs.views.schema import Use

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.views.schema import DataSchema

N = 3000
RNG = np.random.default_rng(7)
PLAIN = {"label": np.arange(N) % 4 == 0, "age": RNG.integers(18, 90, N), "site": RNG.choice(["a", "b"], N)}
OUT = "left out"


def data_of(path: Path, **keys: Any) -> DataSpec:
    """Return the data of a job file that names no more than the path and these keys."""
    return job_from({"name": "x", "data": {"path": str(path), **keys}}).data


def written(folder: Path, ending: str, **columns: Any) -> Path:
    path = folder / f"rows.{ending}"
    frame = pd.DataFrame({**PLAIN, **columns})
    if ending == "csv":
        frame.to_csv(path, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    return path


def taken(data: DataSpec) -> DataSchema:
    features, schema = take_data(data, ModelSpec())
    assert len(ShardReader(data, features).read(0, 10)) == 10
    return schema


def use_of(schema: DataSchema, name: str) -> Any:
    return next((column.use for column in schema.columns if column.name == name), OUT)


GUESSED: dict[str, tuple[Any, Any, str, Any]] = {  # name -> values, use, what is said, use by the type alone
    "user_id": (10**9 + RNG.integers(0, 900, N), Use.CATEGORICAL, "looks like ids", Use.NUMERIC),
    "itemID": (RNG.integers(0, 900, N), Use.CATEGORICAL, "looks like ids", Use.NUMERIC),
    "movieid": (RNG.integers(0, 900, N), Use.CATEGORICAL, "looks like ids", Use.NUMERIC),
    "campaign": (RNG.integers(0, 900, N), Use.CATEGORICAL, "looks like ids", Use.NUMERIC),
    "Unnamed: 0": (RNG.permutation(N), OUT, "numbers the rows", Use.NUMERIC),
    "__index_level_0__": (RNG.permutation(N), OUT, "numbers the rows", Use.NUMERIC),
    "index": (RNG.permutation(N), OUT, "numbers the rows", Use.NUMERIC),
    "column_1": (1 + RNG.permutation(N), OUT, "numbers the rows", Use.NUMERIC),
    "id": (RNG.permutation(N), OUT, "numbers the rows", Use.NUMERIC),
    "nr": (np.arange(N) + 10**6, OUT, "counts the rows", Use.NUMERIC),
    "day": (pd.date_range("2024", periods=N, freq="h"), OUT, "holds times", Use.NUMERIC),
    "timestamp": (880_000_000 + RNG.integers(0, 9999, N), OUT, "holds times", Use.NUMERIC),
    "seenAt": ((1_700_000_000 + RNG.integers(0, 9999, N)) * 1000, OUT, "holds times", Use.NUMERIC),
    "date": (20_240_101 + RNG.integers(0, 28, N), OUT, "holds times", Use.NUMERIC),
    "on": ([f"{i % 28 + 1:02}.02.2024" for i in range(N)], OUT, "holds times as text", Use.CATEGORICAL),
}  # fmt: skip


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_what_no_key_names_is_what_its_name_and_values_say(tmp_path: Path, ending: str) -> None:
    path = written(tmp_path, ending, **{name: values for name, (values, *_) in GUESSED.items()})
    schema, by_type = taken(data_of(path)), taken(data_of(path, guess=False))
    for name, (_, use, said, use_by_type) in GUESSED.items():
        (text,) = [each for each in schema.guesses if each.startswith(f"column {name!r} ")]
        assert said in text
        assert use_of(schema, name) is use, name
        assert use_of(by_type, name) is use_by_type, name
    assert len(schema.guesses) == len(GUESSED)
    assert schema.warnings == ()
    assert by_type.guesses == ()
    assert (use_of(schema, "age"), use_of(schema, "site")) == (Use.NUMERIC, Use.CATEGORICAL)


def test_each_guess_says_the_key_that_goes_against_it(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", **{name: values for name, (values, *_) in GUESSED.items()})
    for name, (*_, use) in GUESSED.items():
        (text,) = [each for each in taken(data_of(path)).guesses if each.startswith(f"column {name!r} ")]
        kind = "category" if use is Use.CATEGORICAL else "number"
        word = name if name.isidentifier() else repr(name)
        assert f"types: {{{word}: {kind}}} takes it" in text
    all_types = {
        name: "category" if use is Use.CATEGORICAL else "number" for name, (*_, use) in GUESSED.items()
    }
    schema = taken(data_of(path, types=all_types))
    assert schema.guesses == schema.warnings == ()
    assert {name: use_of(schema, name) for name in GUESSED} == {n: use for n, (*_, use) in GUESSED.items()}


@for_each(
    ("name", "values"),
    [
        ("I1", RNG.geometric(1e-4, N)),  # counts, as those of Criteo
        ("visits", RNG.integers(0, 50, N)),
        ("n_user", RNG.integers(0, 50, N)),
        ("num_id", RNG.integers(0, 50, N)),
        ("bytes", RNG.lognormal(15, 3, N).astype(int)),
        ("memory", 10**9 + RNG.integers(0, 10**9, N)),
        ("price", RNG.integers(0, 10**6, N)),
        ("rank", RNG.permutation(N)),
        ("hour", RNG.integers(0, 24, N)),
        ("time", RNG.integers(0, 86_400, N)),
        ("valid", RNG.integers(0, 2, N)),
        ("took", pd.to_timedelta(RNG.integers(0, 50, N), unit="s")),
    ],
)
def test_numbers_stay_numbers(tmp_path: Path, name: str, values: Any) -> None:
    schema = taken(data_of(written(tmp_path, "parquet", **{name: values})))
    assert use_of(schema, name) is Use.NUMERIC
    assert schema.guesses == ()


def test_ids_of_a_text_file_are_what_is_written_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,user_id,x\n" + "".join(f"{i % 2},{i % 7:03},{i}.5\n" for i in range(60)))
    features = take_data(data_of(path), ModelSpec())[0]
    named = make_features(DataSpec("csv", str(path), categorical=("user_id",), numeric=("x",)), ModelSpec())
    assert features.categorical == named.categorical
    reader, other = (ShardReader(data_of(path), each) for each in (features, named))
    assert np.array_equal(reader.read(0, 50).ids, other.read(0, 50).ids)


def test_columns_that_are_named_are_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", user_id=RNG.integers(0, 50, N), day=pd.date_range("2024", periods=N))
    schema = taken(data_of(path, numeric=["user_id", "day", "age"], categorical=["site"]))
    assert schema.guesses == schema.warnings == ()
    assert use_of(schema, "user_id") is use_of(schema, "day") is Use.NUMERIC


def test_only_dates_leave_nothing_to_train_on_and_say_why(tmp_path: Path, error_words) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,day\n1,2024-01-01\n0,2024-01-02\n")
    with error_words(InvalidValueError):
        taken(data_of(path))


def test_a_row_number_of_more_rows_than_are_looked_at_is_found_in_any_order(tmp_path: Path, words) -> None:
    n = N_SAMPLE_ROW + 5000
    frame = pd.DataFrame({"label": np.arange(n) % 2, "x": RNG.normal(0, 1, n), "index": RNG.permutation(n)})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    (text,) = taken(data_of(tmp_path / "rows.csv")).guesses
    assert text == words


def test_what_was_guessed_is_said_before_the_job_starts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, words
) -> None:
    path = written(tmp_path, "csv", user_id=RNG.integers(0, 50, N))
    with caplog.at_level(logging.WARNING):
        validate_job(job_from({"name": "ads", "data": {"path": str(path)}}))
    (record,) = caplog.records
    assert record.getMessage() == words


def test_a_job_that_goes_on_uses_the_columns_as_the_job_before(tmp_path: Path) -> None:
    columns = {name: values for name, (values, *_) in GUESSED.items()}
    path = written(tmp_path, "csv", **columns)
    before = DataSpec("csv", str(path))  # of an earlier release
    trained = make_features(before, ModelSpec())
    assert "user_id" in [column.name for column in trained.numeric]
    features, schema = take_data(data_of(path), ModelSpec(), trained=trained)
    assert schema.guesses == ()
    assert differences(Trained(ModelSpec(), before, trained), ModelSpec(), features) == ()
    assert [column.name for column in features.numeric] == [column.name for column in trained.numeric]
    assert differences(
        Trained(ModelSpec(), before, trained), ModelSpec(), make_features(data_of(path), ModelSpec())
    )


def test_a_job_that_goes_on_needs_no_names_of_columns(tmp_path: Path, words) -> None:
    path = written(tmp_path, "csv", seat=RNG.integers(0, 50, N), day=pd.date_range("2024", periods=N))
    before = data_of(path, categorical=["seat"], numeric=["day"])
    trained = make_features(before, ModelSpec())
    features = make_features(data_of(path), ModelSpec(), trained=trained)
    assert (features.numeric, features.categorical) == (trained.numeric, trained.categorical)
    (warning,) = take_data(data_of(path), ModelSpec(), trained=trained)[1].warnings
    assert warning == words
    assert take_data(data_of(path, exclude=["age", "site"]), ModelSpec(), trained=trained)[1].warnings == ()
    other = make_features(data_of(path, types={"seat": "number"}), ModelSpec(), trained=trained)
    (number, ids) = differences(Trained(ModelSpec(), before, trained), ModelSpec(), other)
    assert number == words
    assert ids == words


def test_a_record_of_an_earlier_release_guesses_nothing_and_is_submitted_again_so(tmp_path: Path) -> None:
    path = written(tmp_path, "csv", user_id=RNG.integers(0, 50, N))
    new = JobSpec("ads", data=data_of(path))
    assert new.data.guess
    old = from_json(to_json(new).replace(b',"guess":true', b""), JobSpec)
    assert not old.data.guess
    assert use_of(taken(old.data), "user_id") is Use.NUMERIC
    assert "data.guess=false" in submit_command(old)
    assert "guess" not in submit_command(new)


def test_criteos_integers_stay_numbers(tmp_path: Path) -> None:
    rows = [["1" if i % 2 else "0", *map(str, RNG.integers(0, 10**6, 13)), *["ab12"] * 26] for i in range(N)]
    path = tmp_path / "rows.csv"
    pd.DataFrame(rows, columns=COLUMNS).to_csv(path, index=False)
    schema = taken(data_of(path))
    assert schema.guesses == ()
    assert all(use_of(schema, f"I{i}") is Use.NUMERIC for i in range(1, 14))
