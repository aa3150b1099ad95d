"""Rows of a user's own object and of NumPy files are those of any other source."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.objects.own_source import _Restarted
from dlrover_nb.core.errors import DlroverError, InvalidValueError
from dlrover_nb.core.runtime.node.preflight import validate_job
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat, Embedding
from dlrover_nb.core.usercode import pack

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

N_ROW = 500
RNG = np.random.default_rng(3)
COLUMNS = {
    "label": RNG.integers(0, 2, N_ROW),
    "price": RNG.lognormal(size=N_ROW),
    "site": RNG.choice(["a", "b", "c"], N_ROW),
}


def cut(start: int, stop: int) -> dict[str, Any]:
    return {name: column[start:stop] for name, column in COLUMNS.items()}


class Ranges:
    n_row = N_ROW

    def read(self, start: int, stop: int) -> dict[str, Any]:
        return cut(start, stop)


class Frames(Ranges):
    def read(self, start: int, stop: int) -> pd.DataFrame:  # type: ignore[override]
        return pd.DataFrame(cut(start, stop))


class Tables(Ranges):
    def read(self, start: int, stop: int) -> pa.Table:
        return pa.table(cut(start, stop))


class Pieces:
    """An iterator of pieces of 7 rows, that can be started anywhere."""

    n_row = N_ROW

    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        for at in range(start, N_ROW, 7):
            yield cut(at, min(at + 7, N_ROW))


def make() -> Pieces:
    return Pieces()


class Histories(Ranges):
    """Lists of the row's last clicks, none in the first row; as lists of lists, whatever their lengths."""

    def read(self, start: int, stop: int) -> dict[str, Any]:
        lists = [list(range(max(i - 3, 0), i)) for i in range(start, stop)]
        return {"label": COLUMNS["label"][start:stop], "clicked": lists}


class PiecesOfHistories(Pieces):
    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        for at in range(start, N_ROW, 7):
            yield Histories().read(at, min(at + 7, N_ROW))


def own(thing: object, folder: Path) -> DataSpec:
    packed = pack(thing)
    packed.write(folder)
    return DataSpec(DataFormat.OWN, packed.code)


@pytest.fixture(scope="module")
def parquet(tmp_path_factory: pytest.TempPathFactory) -> ShardReader:
    path = tmp_path_factory.mktemp("data") / "rows.parquet"
    pq.write_table(pa.table(COLUMNS), path)
    data = DataSpec(DataFormat.PARQUET, str(path))
    return ShardReader(data, make_features(data, ModelSpec()))


@for_each("thing", [Ranges, Ranges(), Frames, Tables, Pieces, make])
def test_a_users_rows_are_encoded_as_those_of_a_file(
    thing: object, tmp_path: Path, parquet: ShardReader
) -> None:
    data = own(thing, tmp_path)
    reader = ShardReader(data, make_features(data, ModelSpec(), folder=tmp_path), folder=tmp_path)
    for start, stop in ((0, 100), (100, 130), (30, 60), (N_ROW - 3, N_ROW), (9, 9)):
        ours, theirs = reader.read(start, stop), parquet.read(start, stop)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.dense, theirs.dense)
        np.testing.assert_array_equal(ours.labels, theirs.labels)


@settings(deadline=None, max_examples=30)
@given(ranges=st.lists(st.tuples(st.integers(0, N_ROW), st.integers(0, 40)), max_size=12))
def test_an_iterator_gives_any_ranges_in_any_order(ranges: list[tuple[int, int]]) -> None:
    restarted = _Restarted(Pieces())
    for start, length in ranges:
        stop = min(start + length, N_ROW)
        table = restarted.read(start, stop)
        assert table.num_rows == stop - start
        if table.num_rows:
            assert table["price"].to_pylist() == COLUMNS["price"][start:stop].tolist()


class Guests(Ranges):
    """Pieces as pandas reads parts of a file: their types follow from what is in them."""

    ids = ("guest", *map(str, range(1, 40)), "", *map(str, range(40, 99)))

    def __init__(self) -> None:
        self.n_row = len(self.ids)

    def read(self, start: int, stop: int) -> pd.DataFrame:
        part = pd.DataFrame({"label": 1, "user": self.ids[start:stop]})
        return pd.read_csv(io.StringIO(part.to_csv(index=False)))


def test_pieces_whose_types_follow_from_their_rows_give_the_same_ids(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("label,user\n" + "".join(f"1,{user}\n" for user in Guests.ids))
    model = ModelSpec(embedding=Embedding.HASH)
    file = DataSpec(DataFormat.CSV, str(path), categorical=("user",), holdout=0.0)
    want = ShardReader(file, make_features(file, model)).read(0, len(Guests.ids)).ids
    data = replace(own(Guests, tmp_path), categorical=("user",), holdout=0.0)
    reader = ShardReader(data, make_features(data, model, folder=tmp_path), folder=tmp_path)
    for start, stop in ((0, len(Guests.ids)), (5, 30), (35, 45), (60, 70)):
        np.testing.assert_array_equal(reader.read(start, stop).ids, want[start:stop])


class Short(Ranges):
    def read(self, start: int, stop: int) -> dict[str, Any]:
        return cut(start, max(start + 1, stop - 1))


class Uncounted:
    def read(self, start: int, stop: int) -> dict[str, Any]:
        return cut(start, stop)


class Broken(Ranges):
    def read(self, start: int, stop: int) -> dict[str, Any]:
        raise OSError(f"the store of {start}, {stop} is away")


class Lists(Ranges):
    def read(self, start: int, stop: int) -> Any:
        return [start, stop]


@for_each(
    ("thing", "message"),
    [
        (Short, r"data Short gave 499 rows for \[0, 500\), expected 500"),
        (Uncounted, r"data Uncounted must say its rows as n_row >= 1, None for a stream; got 'nothing'"),
        (Broken, r"data Broken failed at rows \[0, 1\): OSError: the store of 0, 1 is away"),
        (Lists, r"rows must be a DataFrame, an Arrow table or a dict of arrays, got list"),
        (dict, r"data dict must have read\(start, stop\) or rows\(start\), got dict"),
    ],
)
def test_a_mistake_in_it_is_one_line(thing: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(DlroverError, match=message):
        make_features(own(thing, tmp_path), ModelSpec(), folder=tmp_path)


def numpy_reader(path: Path) -> ShardReader:
    data = DataSpec(DataFormat.NUMPY, str(path))
    return ShardReader(data, make_features(data, ModelSpec()))


def test_numpy_files_hold_the_same_rows(tmp_path: Path, parquet: ShardReader) -> None:
    np.savez(tmp_path / "rows.npz", **COLUMNS)
    kinds = [(name, column.dtype) for name, column in COLUMNS.items()]
    records = np.array(list(zip(*COLUMNS.values(), strict=True)), kinds)
    np.save(tmp_path / "rows.npy", records)
    for name in ("rows.npz", "rows.npy"):
        ours, theirs = numpy_reader(tmp_path / name).read(40, 90), parquet.read(40, 90)
        np.testing.assert_array_equal(ours.ids, theirs.ids)
        np.testing.assert_array_equal(ours.dense, theirs.dense)


def test_an_array_of_two_axes_is_as_many_columns(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", label=COLUMNS["label"], x=RNG.normal(size=(N_ROW, 3)))
    data = DataSpec(DataFormat.NUMPY, str(tmp_path / "x.npz"), exclude=("x.1",))
    assert [c.name for c in make_features(data, ModelSpec()).numeric] == ["x.0", "x.2"]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": np.zeros(3), "x": np.zeros(2)}, "must be of one length, got"),
        ({"label": np.zeros(3), "x": np.array([{}, 1, 2], object)}, "without pickled objects"),
        ({"label": np.zeros((1, 1, 3))}, "'label' must have 1 or 2 axes, got 3"),
    ],
)
def test_a_numpy_file_of_something_else_is_refused(
    arrays: dict[str, Any], message: str, tmp_path: Path
) -> None:
    np.savez(tmp_path / "x.npz", **arrays)
    with pytest.raises(InvalidValueError, match=message):
        numpy_reader(tmp_path / "x.npz")


def test_a_text_file_is_no_numpy_file(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_text("hello")
    with pytest.raises(InvalidValueError, match="is not a NumPy file"):
        numpy_reader(tmp_path / "x.npz")


class Feed(Pieces):
    n_row = None  # type: ignore[assignment]


def test_a_stream_gives_what_there_is_and_keeps_nothing_back(tmp_path: Path, parquet: ShardReader) -> None:
    data = own(Feed, tmp_path)
    features = make_features(data, ModelSpec(), folder=tmp_path)
    assert features.is_stream
    assert features.n_eval == 0
    reader = ShardReader(data, features, folder=tmp_path)
    np.testing.assert_array_equal(reader.read(0, 50).labels, parquet.read(0, 50).labels)
    assert [len(reader.read(at, at + 40)) for at in (N_ROW - 40, N_ROW - 3, N_ROW, N_ROW + 99)] == [
        40,
        3,
        0,
        0,
    ]


def test_a_stream_comes_but_once(tmp_path: Path, error_words) -> None:
    with error_words(InvalidValueError):
        validate_job(JobSpec("x", n_epoch=2), data=Feed)


class Nothing(Feed):
    def rows(self, start: int) -> Iterator[dict[str, Any]]:
        return iter(()) if start >= 0 else super().rows(start)


def test_a_stream_that_has_not_begun_has_no_columns(error_words) -> None:
    with error_words(InvalidValueError):
        validate_job(JobSpec("x"), data=Nothing)


@for_each("thing", [Histories, PiecesOfHistories])
def test_lists_of_a_users_rows_are_sequences_though_the_first_is_empty(tmp_path: Path, thing: type) -> None:
    data = own(thing, tmp_path)
    features = make_features(data, ModelSpec(embedding=Embedding.HASH), folder=tmp_path)
    assert [sequence.name for sequence in features.sequences] == ["clicked"]
    ids = ShardReader(data, features, folder=tmp_path).read(0, 20).ids
    assert (ids >= 0).sum(1).tolist() == [0, 1, 2, *[3] * 17]
    again = ShardReader(data, features, folder=tmp_path).read(5, 9).ids
    assert np.array_equal(again, ids[5:9])
