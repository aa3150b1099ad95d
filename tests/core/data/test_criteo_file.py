"""Criteo's tab-separated files: same rows by any range, clear errors with the line."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.encode import MISSING
from dlrover_nb.core.data.formats.criteo import CATEGORICAL, NUMERIC, STRIDE
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.core.structs.job.job import DataSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ModelSpec()


def line(i: int) -> str:
    rng = np.random.default_rng(i)
    numbers = ["" if v == 0 else str(v - 3) for v in rng.integers(0, 50, 13)]
    ids = ["" if v == 0 else f"{v * 2654435761 % 2**32:08x}" for v in rng.integers(0, 20, 26)]
    return "\t".join([str(i % 2), *numbers, *ids])


def write(folder: Path, lines: list[str], *, end: str = "\n") -> DataSpec:
    path = folder / "train.txt"
    path.write_bytes(("\n".join(lines) + end).encode())
    return DataSpec(DataFormat.CRITEO, str(path))


LINES = [line(i) for i in range(2 * STRIDE + 300)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> DataSpec:
    return write(tmp_path_factory.mktemp("criteo"), LINES)


def test_columns_are_criteos(data: DataSpec) -> None:
    features = make_features(data, MODEL)
    assert tuple(c.name for c in features.numeric) == NUMERIC
    assert tuple(c.name for c in features.categorical) == CATEGORICAL
    assert features.n_train + features.n_eval == len(LINES)


@pytest.mark.more
@settings(deadline=None, max_examples=30)
@given(st.tuples(st.integers(0, len(LINES)), st.integers(0, len(LINES))))
def test_any_range_reads_the_rows_of_its_lines(data: DataSpec, ends: tuple[int, int]) -> None:
    start, stop = sorted(ends)
    features = make_features(data, MODEL)
    batch = ShardReader(data, features).read(start, stop)
    assert batch.labels.tolist() == [i % 2 for i in range(start, stop)]
    missing_row = int(MISSING % np.uint64(features.categorical[0].hash_size))
    is_missing = [not text.split("\t")[14] for text in LINES[start:stop]]
    assert (batch.ids[:, 0] == missing_row).tolist() == is_missing


def test_ranges_around_the_noted_places_join_without_a_seam(data: DataSpec) -> None:
    reader = ShardReader(data, make_features(data, MODEL))
    whole = reader.read(0, len(LINES))
    for cut in (STRIDE - 1, STRIDE, STRIDE + 1, 2 * STRIDE):
        parts = [reader.read(0, cut), reader.read(cut, len(LINES))]
        np.testing.assert_array_equal(np.concatenate([p.ids for p in parts]), whole.ids)
        np.testing.assert_array_equal(np.concatenate([p.dense for p in parts]), whole.dense)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_the_last_line_needs_no_line_end(tmp_path: Path, end: str) -> None:
    lines = LINES[:5] if end != "\r\n" else [text + "\r" for text in LINES[:4]] + [LINES[4]]
    spec = write(tmp_path, lines, end=end)
    reader = ShardReader(spec, make_features(spec, MODEL))
    assert reader.read(0, 5).labels.tolist() == [0, 1, 0, 1, 0]


def test_a_line_with_too_few_fields_is_named(tmp_path: Path, error_words) -> None:
    spec = write(tmp_path, [*LINES[:1500], "1\t2\t3", *LINES[:10]])
    with error_words(InvalidValueError):
        make_features(spec, MODEL)


def test_text_in_a_number_column_is_named(tmp_path: Path, error_words) -> None:
    broken = LINES[3].split("\t")
    broken[2] = "many"
    spec = write(tmp_path, [*LINES[:3], "\t".join(broken)])
    with error_words(InvalidValueError):
        make_features(spec, MODEL)


def test_a_wrong_label_is_named(tmp_path: Path, error_words) -> None:
    spec = write(tmp_path, [*LINES[:3], "5" + LINES[3][1:]])
    with error_words(InvalidValueError):
        make_features(spec, MODEL)


def test_an_empty_or_missing_file_is_refused_and_a_compressed_one_read(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    spec = DataSpec(DataFormat.CRITEO, str(path))
    with pytest.raises(NotFoundError, match="no data file"):
        make_features(spec, MODEL)
    path.write_bytes(gzip.compress(LINES[0].encode()))
    assert make_features(spec, MODEL).n_train == 1
    path.write_bytes(b"")
    with pytest.raises(InvalidValueError, match="has no rows"):
        make_features(spec, MODEL)
