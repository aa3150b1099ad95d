"""Odd and forged data: each costs one helpful line at submit, or is read as what it means."""

from __future__ import annotations

import io
import zipfile
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.data import ShardReader
from dlrover_nb.core.data import encode as encode_module
from dlrover_nb.core.data.encode import distinct, hash_values
from dlrover_nb.core.data.objects.arrow_tables import as_table
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat
from dlrover_nb.core.structs.views.schema import Use

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.structs.views.schema import DataSchema

N = 40
LABEL = [i % 2 for i in range(N)]
LONG = "n" * 300


def taken(data: DataSpec) -> DataSchema:
    """Take the data as a submit does, and read all rows as a node does."""
    features, schema = take_data(data, ModelSpec())
    reader = ShardReader(data, features)
    assert len(reader.read(0, features.n_train + features.n_eval)) == schema.n_row
    return schema


def refused(data: DataSpec) -> str:
    with pytest.raises(DlroverError) as caught:
        taken(data)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def parquet(folder: Path, table: pa.Table, **options: Any) -> DataSpec:
    pq.write_table(table, folder / "rows.parquet")
    return DataSpec(DataFormat.PARQUET, str(folder / "rows.parquet"), **options)


def npz(folder: Path, **arrays: Any) -> DataSpec:
    np.savez(folder / "rows.npz", **arrays)
    return DataSpec(DataFormat.NUMPY, str(folder / "rows.npz"))


COLUMNS = {
    "views of text": (pa.array([f"id-{i % 3}" for i in range(N)], pa.string_view()), Use.CATEGORICAL),
    "views of bytes": (pa.array([b"id"] * N, pa.binary_view()), Use.CATEGORICAL),
    "dictionary": (pa.array(["a", "b"] * (N // 2)).dictionary_encode(), Use.CATEGORICAL),
    "decimal": (pa.array([Decimal("1.50")] * N), Use.NUMERIC),
    "date": (pa.array([date(2024, 1, 1)] * N), Use.NUMERIC),
    "timestamp with zone": (
        pa.array([datetime(2024, 1, 1)] * N, pa.timestamp("us", tz="Europe/Berlin")),  # noqa: DTZ001 - as stored
        Use.NUMERIC,
    ),
    "duration": (pa.array([timedelta(1)] * N), Use.NUMERIC),
    "half float": (pa.array(np.arange(N).astype(np.float16)), Use.NUMERIC),
    "unsigned": (pa.array([2**64 - 1 - i for i in range(N)], pa.uint64()), Use.NUMERIC),
}


@for_each("kind", COLUMNS)
@for_each("as_ids", [False, True])
def test_a_column_of_any_plain_type_is_used(tmp_path: Path, kind: str, *, as_ids: bool) -> None:
    values, use = COLUMNS[kind]
    table = pa.table({"label": LABEL, "x": [1.0] * N, "c": values})
    options = {"categorical": ("c",), "numeric": ("x",)} if as_ids else {}
    schema = taken(parquet(tmp_path, table, **options))
    uses = {column.name: column.use for column in schema.columns}
    assert uses["c"] is (Use.CATEGORICAL if as_ids else use)
    assert not schema.unused


def test_views_of_text_are_the_same_ids_as_text(tmp_path: Path) -> None:
    texts = [f"id-{i % 7}" for i in range(N)]
    batches = []
    for kind in (pa.string(), pa.string_view(), pa.large_string()):
        data = parquet(tmp_path, pa.table({"label": LABEL, "c": pa.array(texts, kind)}))
        batches.append(ShardReader(data, take_data(data, ModelSpec())[0]).read(0, N // 2).ids.tolist())
    assert batches[0] == batches[1] == batches[2]
    assert (
        as_table(pa.table({"c": pa.array(texts, pa.string_view())})).schema.field("c").type
        == pa.large_string()
    )


NESTED = {
    "list of fractions": pa.array([[1.5, 2]] * N),
    "list of fixed length": pa.array([[1, 2]] * N, pa.list_(pa.float32(), 2)),
    "list of lists": pa.array([[[1]]] * N),
    "struct": pa.array([{"a": 1}] * N),
    "map": pa.array([[("a", 1)]] * N, pa.map_(pa.string(), pa.int32())),
    "nothing": pa.nulls(N),
}


@for_each("kind", NESTED)
def test_a_column_that_no_model_takes_is_named_and_refused_where_it_is_asked_for(
    tmp_path: Path, kind: str
) -> None:
    table = pa.table({"label": LABEL, "x": [1.0] * N, "c": NESTED[kind]})
    assert "column 'c' left out" in " ".join(taken(parquet(tmp_path, table)).warnings)
    assert "exclude it" in refused(parquet(tmp_path, table, categorical=("c",)))
    assert not taken(parquet(tmp_path, table, exclude=("c",), numeric=("x",))).warnings


@for_each(
    ("values", "got"),
    [
        (pa.array([datetime(2024, 1, 1)] * N), "timestamp"),  # noqa: DTZ001 - a column without a zone
        (pa.array([[1]] * N), "list"),
        (pa.array(["1"] * (N - 1) + ["a" * 10**6]), "'aaaa.*…a"),
    ],
)
def test_a_label_of_another_kind_is_refused(tmp_path: Path, values: pa.Array, got: str) -> None:
    data = parquet(tmp_path, pa.table({"label": values, "x": [1.0] * N}))
    text = refused(data)
    assert "must hold 0 or 1" in text
    assert "(rows[column] == value).astype(int), or name another column" in text
    assert pc.match_substring_regex(pa.array([text]), got)[0].as_py(), text


@for_each("values", [pa.nulls(N), pa.array([1, None] * (N // 2)), pa.array([1, np.nan] * (N // 2))])
def test_rows_without_a_label_are_to_be_left_out(tmp_path: Path, values: pa.Array, words) -> None:
    text = refused(parquet(tmp_path, pa.table({"label": values, "x": [1.0] * N})))
    assert text == words


@for_each(
    ("array", "words"),
    [
        (np.arange(N) + 1j, "complex128.*two arrays"),
        (np.arange(N).astype(np.longdouble), "float64"),
        (np.zeros(N, "V8"), "arrays of their own"),
        (np.zeros(N, [("a", "i4")]), "arrays of their own"),
        (np.arange(N).astype("M8[M]"), "astype\\('datetime64\\[s\\]'\\)"),
        (np.array([{}] * N, dtype=object), "without pickled objects"),
        (np.float64(3), "1 or 2 axes, got 0"),
        (np.zeros((N, 2, 2)), "1 or 2 axes, got 3"),
        (np.zeros(N - 1), f"of one length, got 'label' {N}, 'x' {N - 1}"),
    ],
)
def test_an_array_that_is_no_column_is_refused_with_what_to_make_of_it(
    tmp_path: Path, array: Any, words: str
) -> None:
    text = refused(npz(tmp_path, label=np.array(LABEL), x=array))
    assert pc.match_substring_regex(pa.array([text]), words)[0].as_py(), text


def test_arrays_of_either_byte_order_are_the_same_rows(tmp_path: Path) -> None:
    batches = []
    for order in "<>":
        label, x = np.array(LABEL, f"{order}i4"), np.arange(N).astype(f"{order}f8")
        text = np.array(["a", "bc"] * (N // 2), f"{order}U2")
        data = npz(tmp_path, label=label, x=x, text=text)
        batches.append(ShardReader(data, take_data(data, ModelSpec())[0]).read(0, 20))
        rows = np.array(
            list(zip(LABEL, range(N), strict=True)), [("label", f"{order}i4"), ("x", f"{order}f8")]
        )
        np.save(tmp_path / "rows.npy", rows)
        assert taken(DataSpec(DataFormat.NUMPY, str(tmp_path / "rows.npy"))).n_row == N
    assert batches[0].ids.tolist() == batches[1].ids.tolist()
    assert batches[0].dense.tolist() == batches[1].dense.tolist()


def header(shape: tuple[int, ...]) -> bytes:
    sink = io.BytesIO()
    np.lib.format.write_array_header_1_0(sink, {"descr": "<f8", "fortran_order": False, "shape": shape})
    return sink.getvalue()


def test_a_header_that_claims_128_gib_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("label.npy", header((16 << 30,)))
    assert "array 'label' of" in refused(DataSpec(DataFormat.NUMPY, str(path)))
    (tmp_path / "rows.npy").write_bytes(header((8 << 30, 2)) + b"0" * 100)
    assert "not a NumPy file" in refused(DataSpec(DataFormat.NUMPY, str(tmp_path / "rows.npy")))


def test_arrays_whose_columns_have_one_name_are_refused(tmp_path: Path) -> None:
    data = npz(tmp_path, **{"label": np.array(LABEL), "x": np.zeros((N, 2)), "x.0": np.zeros(N)})
    assert "'x.0'; rename one" in refused(data)


def test_parquet_columns_of_one_name_are_refused(tmp_path: Path, words) -> None:
    table = pa.Table.from_arrays([pa.array(LABEL)] * 3, names=["label", "x", "x"])
    assert refused(parquet(tmp_path, table)) == words


@for_each("cut", [0, 3, 50, -1, -9, -30])
@for_each("ending", ["parquet", "npz", "npy"])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, ending: str, cut: int) -> None:
    table, path = pa.table({"label": LABEL, "x": [float(i) for i in range(N)]}), tmp_path / f"rows.{ending}"
    match ending:
        case "parquet":
            pq.write_table(table, path)
        case "npz":
            np.savez(path, label=np.array(LABEL), x=np.arange(N))
        case _:
            np.save(path, np.zeros((N, 2)))
    path.write_bytes(path.read_bytes()[:cut])
    kind = DataFormat.PARQUET if ending == "parquet" else DataFormat.NUMPY
    assert str(path) in refused(DataSpec(kind, str(path)))


def test_bytes_that_are_changed_in_the_middle_of_a_parquet_file_are_reported(tmp_path: Path) -> None:
    data = parquet(tmp_path, pa.table({"label": LABEL * 100, "x": list(range(N * 100))}))
    content = bytearray((tmp_path / "rows.parquet").read_bytes())
    content[100:2000] = b"\xff" * 1900
    (tmp_path / "rows.parquet").write_bytes(content)
    assert "damaged: write it again" in refused(data)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.one_of(st.none(), st.text(max_size=60)), max_size=30), st.integers(1, 30))
def test_short_texts_keep_their_hash_beside_long_ones(texts: list[str | None], most: int) -> None:
    values = pa.array(texts, pa.string())
    alone = hash_values(values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_module, "_LONG", most)
        beside = hash_values(values)
        again = hash_values(values)
    for text, one, other in zip(texts, alone, beside, strict=True):
        if text is None or len(text.encode()) <= most:
            assert one == other
    assert beside.tolist() == again.tolist()
    long = {text: h for text, h in zip(texts, beside, strict=True) if text and len(text.encode()) > most}
    assert len(set(long.values())) == len(long)


def test_a_text_of_a_megabyte_is_one_id_and_warned_of(tmp_path: Path) -> None:
    texts = [f"t{i % 3}" for i in range(N)]
    texts[7] = "a" * 10**6
    schema = taken(parquet(tmp_path, pa.table({"label": LABEL, "t": texts})))
    assert any("texts of more than 1000 letters" in text for text in schema.warnings)
    path = tmp_path / "rows.csv"
    path.write_text("label,t\n" + "".join(f"{i % 2},{t}\n" for i, t in enumerate(texts)))
    assert taken(DataSpec(DataFormat.CSV, str(path))).n_row == N
    assert len(np.unique(hash_values(distinct(pa.chunked_array([pa.array(texts)]))[0]))) == 4


def test_long_names_are_cut_in_messages(tmp_path: Path, error_words) -> None:
    table = pa.table({"label": LABEL, **{f"{LONG}{i}": [1.0] * N for i in range(60)}})
    assert taken(parquet(tmp_path, table)).n_row == N
    text = refused_long(parquet(tmp_path, table, numeric=("m" * 300,)))
    assert f"has no column {shown('m' * 300)}" in text
    assert "(61 columns)" in text
    with error_words(InvalidValueError) as caught:
        JobSpec(LONG)
    assert len(str(caught.value)) < 250


def refused_long(data: DataSpec) -> str:
    with pytest.raises(DlroverError) as caught:
        taken(data)
    assert len(str(caught.value)) < 5000
    return str(caught.value)


@for_each(
    ("text", "n_row"),
    [
        ("\ufefflabel,x\r\n1,2\r\n0,3\r\n", 2),
        ('\ufeff"label","x"\r\n1,2\r\n0,3\r\n0,3\r\n', 3),
        ('label,x,t\n1,2,"a\r\nb"\n0,3,c\n', 2),
        ('label,"x\ny"\n1,2\n0,3\n', 2),
        ('"la""bel","label"\r\n1,1\r\n0,0\r\n', 2),
    ],
)
def test_marks_returns_and_quoted_breaks_are_read(tmp_path: Path, text: str, n_row: int) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, newline="")
    assert taken(DataSpec(DataFormat.CSV, str(path), holdout=0.0)).n_row == n_row


@for_each(
    ("text", "words"),
    [
        ("a" * (1 << 20), "header of .* cannot be read"),
        (" \n \n", "has no header"),
        ("", "has no header"),
        ("label,x\n", "has no rows"),
        ('label,"x\n1,2\n0,3\n', "never closed|has no column"),
    ],
)
def test_text_without_rows_or_names_is_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    found = refused(DataSpec(DataFormat.CSV, str(path)))
    assert pc.match_substring_regex(pa.array([found]), words)[0].as_py(), found
