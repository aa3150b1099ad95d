"""CSV and TSV files: any range of rows is what was written, and a mistake in a file is named by its line."""

from __future__ import annotations

import csv
import gzip
import io
import lzma
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import encode_inputs
from dlrover_nb.core.data.formats import record_starts as records_module
from dlrover_nb.core.data.formats.criteo import COLUMNS
from dlrover_nb.core.data.formats.delimited import DelimitedSource
from dlrover_nb.core.data.formats.header import read_header
from dlrover_nb.core.data.formats.record_starts import STRIDE, index_records
from dlrover_nb.core.data.kinds import Kind
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelSpec()
WORDS = st.text(st.sampled_from('ab ,;\t"\n\xe9'), max_size=6)


def written(folder: Path, text: str | bytes, name: str = "rows.csv") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def clicks(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "label": rng.integers(0, 2, n),
            "user": rng.integers(10**15, 10**18, n),
            "price": rng.normal(0, 9, n).round(3),
            "site": [f'say "{i}",\nor not' for i in rng.integers(0, 9, n)],
            "seen": rng.integers(0, 3, n) == 0,
        }
    )
    frame.loc[::7, "price"] = None
    frame.loc[::5, "site"] = None
    return frame


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(WORDS.filter(str.strip), WORDS), min_size=1, max_size=30),
    ends=st.sampled_from(["\n", "\r\n"]),
    chunk=st.integers(1, 40),
    n_last=st.integers(0, 3),
)
def test_records_are_found_wherever_the_file_is_cut(
    rows: list[tuple[str, str]], ends: str, chunk: int, n_last: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    sink = io.StringIO(newline="")
    csv.writer(sink, lineterminator=ends).writerows(rows)
    text = sink.getvalue() + ends * n_last
    path = written(tmp_path_factory.mktemp("csv"), text[: -len(ends)] if n_last == 0 else text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_module, "_CHUNK_BYTES", chunk)
        patch.setattr(records_module, "_LINE_BYTES", chunk)
        patch.setattr(records_module, "STRIDE", 1)
        index = index_records(path, 0)
    assert (index.n_record, index.ends_quoted) == (len(rows), False)
    content = path.read_bytes()
    for i, row in enumerate(rows):
        begin, end = index.span(i, i + 1)
        (found,) = (r for r in csv.reader(io.StringIO(content[begin:end].decode(), newline="")) if r)
        assert tuple(found) == row


@pytest.mark.parametrize(
    ("name", "separator"), [("a.csv", ","), ("b.csv", ";"), ("c.csv", "|"), ("d.tsv", "\t")]
)
def test_every_range_of_rows_is_that_of_the_file(tmp_path: Path, name: str, separator: str) -> None:
    frame, path = clicks(3 * STRIDE + 5), tmp_path / name
    frame.to_csv(path, sep=separator, index=False)
    source = open_source(DataSpec(name.rpartition(".")[2], str(path), categorical=("user",)))
    assert source.n_row == len(frame)
    assert source.kinds == {
        "label": Kind.NUMERIC,
        "user": Kind.CATEGORICAL,
        "price": Kind.NUMERIC,
        "site": Kind.CATEGORICAL,
        "seen": Kind.CATEGORICAL,
    }
    whole = pa.Table.from_pandas(frame, preserve_index=False)
    for start, stop in [(0, 1), (5, 5), (STRIDE - 1, STRIDE + 1), (17, 3 * STRIDE), (0, len(frame))]:
        read = source.read(start, stop, ["user", "price", "site", "seen", "label"])
        assert read.num_rows == stop - start
        for column in read.column_names:
            values = whole.column(column)[start:stop]
            want = values.cast(pa.string()) if column == "user" else values
            assert read.column(column).to_pylist() == want.to_pylist(), column


def test_rows_of_a_file_are_encoded_as_those_of_the_same_data_frame(tmp_path: Path) -> None:
    frame, path = clicks(500), tmp_path / "clicks.csv"
    frame.to_csv(path, index=False)
    data = DataSpec(DataFormat.CSV, str(path), categorical=("user", "site", "seen"), numeric=("price",))
    features = make_features(data, MODEL)
    batch = ShardReader(data, features).read(0, features.n_train)
    read_again = pa.Table.from_pandas(pd.read_csv(path)[: features.n_train])
    ids, dense = encode_inputs(read_again, features)
    assert np.array_equal(batch.ids, ids)
    assert np.array_equal(batch.dense, dense)
    assert batch.labels.tolist() == frame["label"][: features.n_train].tolist()


@for_each(
    "values",
    [
        ["1", "", "NA", "3"],
        ["18446744073709551615", "1", "", "007"],
        ["1", "x", "2", "+3"],
        ["1.50", "2", "3", "4e3"],
        ["True", "False", "", "TRUE"],
        ["2024-01-01", "", " 7", "7 "],
    ],
)
def test_ids_are_what_is_written(tmp_path: Path, values: list[str]) -> None:
    text = "user,label\n" + "".join(f"{value},1\n" for value in values)
    source = DelimitedSource(written(tmp_path, text), ids=("user",))
    there = [None if value in {"", "NA"} else value for value in values]
    assert source.read(0, 4, ["user"]).column("user").to_pylist() == there


def test_numbers_may_get_a_fraction_behind_the_sample_and_ids_a_text(tmp_path: Path) -> None:
    n, at = 200 * STRIDE, 100 * STRIDE - 7
    lines = [f"{i % 9},{i % 50_000},{i % 2}\n" for i in range(n)]
    lines[at] = "2.5,guest,1\n"
    path = written(tmp_path, "age,user,label\n" + "".join(lines))
    data = DataSpec(DataFormat.CSV, str(path), categorical=("user",), numeric=("age",), holdout=0.0)
    reader = ShardReader(data, make_features(data, ModelSpec(embedding=Embedding.HASH)))
    ids, dense = (getattr(reader.read(at - 9, at + 50_001), name) for name in ("ids", "dense"))
    assert np.unique(dense).size == 10
    assert np.unique(ids).size == 50_001
    assert ids[8] == ids[50_008], "an id is the same beside another text and without it"


def test_blank_lines_and_a_byte_order_mark_are_no_rows(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf\r\nlabel , age\r\n1,2\r\n\r\n0,3\r\n\r\n")
    source = DelimitedSource(path)
    assert source.n_row == 2
    assert source.read(1, 2, ["label", "age"]).to_pylist() == [{"label": 0.0, "age": 3.0}]


def test_a_file_of_criteo_is_still_read_by_its_extension_alone(tmp_path: Path) -> None:
    line = "\t".join(["1", *("2" for _ in range(13)), *("ab12" for _ in range(26))])
    path = written(tmp_path, f"{line}\n{line}\n", "day_0.tsv")
    source = open_source(DataSpec(DataFormat.TSV, str(path)))
    assert (source.n_row, tuple(source.kinds)) == (2, COLUMNS)


@for_each(
    ("text", "message"),
    [
        ("label,a\n1,2\n\n0\n", "line 4 of .* has 1 fields, expected 2 as in the header"),
        ('label,a\n1,"x\ny"\n0,1,2\n', "line 4 of .* has 3 fields, expected 2"),
        ("label,a\n1,2\n0,\xe9\n".encode("latin1"), "line 3 of .* is not UTF-8 text; save the file as UTF-8"),
        ("l\xe9,a\n1,2\n".encode("latin1"), "line 1 of .* is not UTF-8 text"),
        ('label,a\n1,2\n0,"x\n1,3\n', "never closed, near line 3"),
        ('label,a\n1,5" pipe\n0,6" pipe\n', "cannot read .* at line 2: .*write the mark twice"),
        ("label,a,a\n1,2,3\n", "has two columns 'a'; rename one"),
        ("1,2\n1,2\n", "line 1 of .* holds numbers, expected the names of the columns"),
        ("", "has no header"),
        ("label,a\n", "has no rows"),
        ("label,a\r1,2\r", "end them with a line feed"),
        (gzip.compress(b"label,a\n1,2\n", mtime=0)[:-5], "cannot be unpacked beyond .* damaged or cut off"),
        (b"PK\x03\x04....", "a ZIP archive or an Excel file, expected plain text; save it as CSV"),
        ("a,label\n1,2\n".encode("utf-16"), "is UTF-16 text, expected plain text; save it as UTF-8"),
        ("a,label\n1,2\n".encode("utf-16-le"), "is UTF-16 text or no text at all, expected UTF-8"),
        (lzma.compress(b"label,a\n1,2\n"), "is xz-compressed, expected plain text; unpack it with unxz"),
        ("<!DOCTYPE html><html>404</html>", "is a web page or XML, expected plain text"),
        ('{"label": 1, "a": 2}\n', "is JSON, expected plain text; write it as CSV or Parquet"),
        ('[\n {"label": 1}]', "is JSON, expected plain text"),
        ("0,0,a\n1,2,b\n", "line 1 of .* holds numbers, expected the names of the columns"),
        ("# made by x\nlabel,a\n1,2\n", "line 2 of .* has 2 fields, expected 1 .* or set data.separator"),
        ('label,a\n1,2\n0,5" nail\n1,3\n', "never closed, near line 3"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(tmp_path: Path, text: Any, message: str) -> None:
    data = DataSpec(DataFormat.CSV, str(written(tmp_path, text)))
    with pytest.raises(InvalidValueError, match=message):
        make_features(data, MODEL)


def test_text_behind_the_sample_in_a_number_column_is_named(tmp_path: Path, error_words) -> None:
    lines = [f"{i % 2},{i}\n" for i in range(200 * STRIDE)]
    at = 100 * STRIDE - 7
    lines[at] = "1,many\n"
    data = DataSpec(DataFormat.CSV, str(written(tmp_path, "label,price\n" + "".join(lines))))
    reader = ShardReader(data, make_features(data, MODEL))
    reader.read(0, STRIDE)
    with error_words(InvalidValueError):
        reader.read(at, at + 10)


@for_each(
    ("text", "names", "separator"),
    [
        ('label;"price, EUR";s\n1;2;x\n0;3;y\n', ("label", "price, EUR", "s"), ";"),
        ('"a;b",label\n1,0\n', ("a;b", "label"), ","),
        ("price, EUR;label;s\n1,5;1;x\n2,5,6;0;y\n", ("price, EUR", "label", "s"), ";"),
        ("a|b,label\n1,0\n", ("a|b", "label"), ","),
        ("sep=;\nlabel;a,b\n1;2,5\n", ("label", "a,b"), ";"),
        ('"sep=\t"\r\n\r\nlabel\ta\r\n1\t2\r\n', ("label", "a"), "\t"),
        ("label,a;b\n", ("label", "a;b"), ","),
    ],
)
def test_the_separator_is_the_one_that_fits_the_rows(
    tmp_path: Path, text: str, names: tuple[str, ...], separator: str
) -> None:
    header = read_header(written(tmp_path, text), None)
    assert (header.names, header.separator) == (names, separator)
    body = text[header.end :]
    assert all(line.count(separator) == len(names) - 1 for line in body.splitlines())
    assert not body.startswith(("label", "sep"))


def test_two_separators_that_fit_are_asked_for_and_the_one_that_is_said_is_used(
    tmp_path: Path, error_words
) -> None:
    path = str(written(tmp_path, "price, EUR;label\n1,5;1\n2,5;0\n"))
    with error_words(InvalidValueError):
        open_source(DataSpec(DataFormat.CSV, path))
    source = open_source(DataSpec(DataFormat.CSV, path, separator=";"))
    assert source.read(0, 2, ["price, EUR"]).to_pydict() == {"price, EUR": ["1,5", "2,5"]}
    tilde = str(written(tmp_path, "label~a\n1~2\n", "tilde.csv"))
    assert tuple(open_source(DataSpec(DataFormat.CSV, tilde, separator="~")).kinds) == ("label", "a")
    for wrong in ("::", "é", "a", '"', "\n"):
        with error_words(InvalidValueError):
            DataSpec(DataFormat.CSV, path, separator=wrong)
    with error_words(InvalidValueError):
        DataSpec(DataFormat.PARQUET, path, separator=";")
