"""Numbers in a local form are the numbers they stand for, in training as in all that goes on with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from support.cases import for_each

from dlrover_nb.core.client.trained_model import TrainedModel
from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import encode_inputs
from dlrover_nb.core.data.formats.record_starts import STRIDE
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.data.types.number_text import forms_of, numbers_of
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.models.built_in import dense_parameter_count
from dlrover_nb.core.rundir.same_model import differences, encoded_as
from dlrover_nb.core.runtime.store import ParameterStore
from dlrover_nb.core.structs.data.column_types import PLAIN, WrittenNumbers
from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding
from dlrover_nb.core.structs.job.trained import Trained

if TYPE_CHECKING:
    from pathlib import Path

N = 400
MODEL = ModelSpec(embedding_dim=4, hidden=(8,), embedding=Embedding.HASH)
GERMAN = WrittenNumbers(",", ".")
KEYS: dict[str, Any] = {"decimal": ",", "thousands": ".", "types": ("rate=number", "zip=category")}
PRICES = np.random.default_rng(1).uniform(-2e6, 2e6, N).round(2)
RATES = np.random.default_rng(2).uniform(0, 99, N).round(1)


def german(x: float) -> str:
    return f"{x:,.2f}".translate(str.maketrans(",.", ".,"))


def frame() -> pd.DataFrame:
    """Return rows with numbers as a program has them."""
    columns = {
        "label": np.arange(N) % 2,
        "price": PRICES,
        "rate": RATES,
        "zip": [f"{i:05}" for i in range(N)],
    }
    return pd.DataFrame(columns).assign(price=lambda rows: rows["price"].where(rows.index % 7 > 0))


def written(folder: Path) -> Path:
    """Return a file with the same rows as people write them."""
    rows = frame()
    path = folder / "rows.csv"
    price = [german(x) if np.isfinite(x) else "-" for x in rows["price"]]
    texts = rows.assign(price=price, rate=[f"{x:.1f} %".replace(".", ",") for x in rows["rate"]])
    texts.to_csv(path, sep=";", index=False)
    return path


@for_each(
    ("texts", "form", "numbers"),
    [
        (["12,50", "1.234,5", "-1.000"], GERMAN, [12.5, 1234.5, -1000.0]),
        (["1,234,567.5", "-$3", "$-3", "USD 4"], WrittenNumbers(".", ","), [1234567.5, -3.0, -3.0, 4.0]),
        (["1 234,5", "1\u00a0234", "1\u202f234"], WrittenNumbers(",", " "), [1234.5, 1234.0, 1234.0]),
        (["1'234.5", "1\u20192"], WrittenNumbers(".", "'"), None),
        (["12.5%", "12.5 %", "(7)", "\u22123", "+4", ".5", "5.", "1e3"], PLAIN, [12.5, 12.5, -7, -3, 4, 0.5, 5, 1e3]),
        (["3,00 €", "€3", "3 EUR"], GERMAN, [3.0, 3.0, 3.0]),
        (["-", "?", "\\N", ".", "", " ", "null", "NONE", "#DIV/0!", None, "2"], PLAIN, [None] * 10 + [2.0]),
        (["inf", "-Infinity", "1e400"], PLAIN, [np.inf, -np.inf, np.inf]),
        (["1,23"], WrittenNumbers(".", ","), None),
        (["1.5"], GERMAN, None),
        (["1,5"], PLAIN, None),
        (["3 pieces"], PLAIN, None),
        (["0x1A"], PLAIN, None),
        (["\u00fc"], PLAIN, None),
    ],
)  # fmt: skip
def test_texts_are_the_numbers_they_stand_for_or_none(
    texts: list[str], form: WrittenNumbers, numbers: Any, error_words
) -> None:
    array = pa.array(texts, pa.string())
    if numbers is not None:
        assert numbers_of(array, form, "x", 0).to_pylist() == numbers
        return
    with error_words(InvalidValueError):
        numbers_of(array, form, "x", 0)


def test_a_form_is_advised_only_as_far_as_the_texts_tell_it() -> None:
    assert forms_of(["12,50"]) == (WrittenNumbers(","),)
    assert forms_of(["1.234,5", "7"]) == (GERMAN,)
    assert forms_of(["1,234"]) == (WrittenNumbers(","), WrittenNumbers(".", ","))
    assert forms_of(["12.5%"]) == (PLAIN,)
    assert forms_of(["seven", "7"]) == ()


def test_a_file_in_a_local_form_trains_and_scores_as_its_numbers(tmp_path: Path) -> None:
    local = DataSpec(DataFormat.CSV, str(written(tmp_path)), holdout=0.0, **KEYS)
    frame().to_csv(tmp_path / "plain.csv", index=False)
    plain = DataSpec(DataFormat.CSV, str(tmp_path / "plain.csv"), holdout=0.0, types=("zip=category",))
    features, of_plain = make_features(local, MODEL), make_features(plain, MODEL)
    assert [replace(c, form=None) for c in features.numeric] == [
        replace(c, form=None) for c in of_plain.numeric
    ]
    assert [c.name for c in features.numeric] == ["price", "rate"]
    want = ShardReader(plain, of_plain).read(0, N)
    batch = ShardReader(local, features).read(0, N)
    assert np.array_equal(batch.dense, want.dense)
    assert np.array_equal(batch.ids, want.ids)


def model_of(data: DataSpec, folder: Path) -> TrainedModel:
    features = make_features(data, MODEL)
    n_dense = dense_parameter_count(MODEL, len(features.categorical), len(features.numeric))
    store = ParameterStore(MODEL, 0, n_dense)
    store.init_dense(np.random.default_rng(1).normal(0, 1, n_dense).astype(np.float32))
    return TrainedModel(JobSpec("x", data=data, model=MODEL), features, store, folder)


def test_what_is_scored_is_read_as_training_was(tmp_path: Path, error_words) -> None:
    path = written(tmp_path)
    model = model_of(DataSpec(DataFormat.CSV, str(path), separator=";", **KEYS), tmp_path)
    want = model.predict(path)
    assert len(np.unique(want)) > 0.9 * N
    texts = pd.read_csv(path, sep=";", dtype=str)
    pq.write_table(pa.Table.from_pandas(texts), tmp_path / "texts.parquet")
    for rows in (texts, frame(), tmp_path / "texts.parquet", texts.to_dict("list")):
        assert np.array_equal(model.predict(rows), want)
    np.testing.assert_allclose(model.predict(texts.iloc[3].to_dict()), want[3:4], rtol=1e-5)
    texts.loc[333, "price"] = "12.5"
    with error_words(InvalidValueError):
        model.predict(texts)


def test_a_job_that_goes_on_reads_its_text_as_the_job_before(tmp_path: Path, words, error_words) -> None:
    before = DataSpec(DataFormat.CSV, str(written(tmp_path)), holdout=0.0, **KEYS)
    trained = Trained(MODEL, before, make_features(before, MODEL))
    ambiguous = tmp_path / "next.csv"
    ambiguous.write_text("label;price;rate;zip\n1;1.234;5;00001\n0;2.345;6;2\n")
    after = DataSpec(DataFormat.CSV, str(ambiguous), holdout=0.0)
    features = make_features(after, MODEL, trained=trained.features)
    assert differences(trained, MODEL, features) == ()
    batch = ShardReader(after, encoded_as(trained, features)).read(0, 2)
    want = encode_inputs(
        pa.table({"price": [1234.0, 2345.0], "rate": [5.0, 6.0], "zip": ["00001", "2"]}), trained.features
    )
    assert np.array_equal(batch.dense, want[1])
    assert np.array_equal(batch.ids, want[0])
    (unsaid,) = differences(trained, MODEL, make_features(replace(after, types=("zip=category",)), MODEL))
    assert unsaid == words
    ambiguous.write_text("label;price;rate;zip\n1;1.5;5;00001\n")
    with error_words(InvalidValueError):
        make_features(after, MODEL, trained=trained.features)


def test_the_form_is_of_the_rows_and_not_of_the_parameters(tmp_path: Path) -> None:
    frame().to_csv(tmp_path / "plain.csv", index=False)
    before = DataSpec(DataFormat.CSV, str(tmp_path / "plain.csv"), holdout=0.0, types=("zip=category",))
    trained = Trained(MODEL, before, make_features(before, MODEL))
    after = DataSpec(DataFormat.CSV, str(written(tmp_path)), holdout=0.0, **KEYS)
    features = make_features(after, MODEL, trained=trained.features)
    assert differences(trained, MODEL, features) == ()
    batch = ShardReader(after, encoded_as(trained, features)).read(0, N)
    want = ShardReader(before, trained.features).read(0, N)
    assert np.array_equal(batch.dense, want.dense)
    assert np.array_equal(batch.ids, want.ids)


@for_each(
    ("cells", "keys", "row"),
    [
        (["1,5"] * 17 + ["12.5"] + ["1,5"] * 20, {"decimal": ","}, 17),
        (["1.5"] * 40, {"decimal": ","}, 0),
        (["1,5"] * 69_990 + ["1.5"] + ["1,5"] * 9, {"decimal": ","}, 69_990),
        (["1.5%"] * 9 + ["many"], {"types": ("price=number",)}, 9),
    ],
    ids=lambda cells: str(len(cells)) if isinstance(cells, list) else repr(cells),
)
def test_a_cell_that_contradicts_the_form_is_refused_with_its_row(
    tmp_path: Path, cells: list[str], keys: dict[str, Any], row: int, error_words
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label;price\n" + "".join(f"{i % 2};{cell}\n" for i, cell in enumerate(cells)))
    with error_words(InvalidValueError):
        take_data(DataSpec(DataFormat.CSV, str(path), **keys), ModelSpec())


def test_a_mark_behind_the_sample_is_read_where_the_column_is_named_a_number(
    tmp_path: Path, error_words
) -> None:
    cells = [str(i) for i in range(200 * STRIDE)]
    at = 100 * STRIDE - 7
    cells[at] = "?"
    path = tmp_path / "rows.csv"
    path.write_text("label,x\n" + "".join(f"{i % 2},{cell}\n" for i, cell in enumerate(cells)))
    data = DataSpec(DataFormat.CSV, str(path))
    reader = ShardReader(data, make_features(data, MODEL))
    with error_words(InvalidValueError):
        reader.read(at, at + 1)
    typed = replace(data, types=("x=number",))
    dense = ShardReader(typed, make_features(typed, MODEL)).read(at - 1, at + 2).dense
    want = reader.read(at - 2000, at - 1999).dense
    assert (abs(dense[[0, 2]] - want) < 0.1).all()
    assert dense[1] == 0


def test_hexadecimal_ids_of_a_text_file_are_ids_once_they_are_named(tmp_path: Path, error_words) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,x,a\n" + "".join(f"{i % 2},{hex(i)},{i}\n" for i in range(40)))
    with error_words(InvalidValueError):
        take_data(DataSpec(DataFormat.CSV, str(path), guess=True), MODEL)
    features = make_features(DataSpec(DataFormat.CSV, str(path), types=("x=category",), guess=True), MODEL)
    assert [c.name for c in features.categorical] == ["x"]


def test_the_encoding_of_an_earlier_release_takes_no_other_texts_for_numbers(error_words) -> None:
    features = make_features(DataSpec(), MODEL)
    old = FeatureSpec(
        features.label, tuple(replace(c, form=None) for c in features.numeric[:1]), (), 1, 0,
        trained_types=features.trained_types,
    )  # fmt: skip
    name = old.numeric[0].name
    assert encode_inputs(pa.table({name: ["12"]}), old)[1].shape == (1, 1)
    with error_words(InvalidValueError):
        encode_inputs(pa.table({name: ["12%"]}), old)
