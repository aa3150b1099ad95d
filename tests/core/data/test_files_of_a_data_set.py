"""Data of several files: the same rows in the same order as of one, wherever it is cut; mistakes name the file."""

from __future__ import annotations

import bz2
import gzip
import os
import threading
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import for_each

from dlrover_nb.core.data import ShardReader, make_features
from dlrover_nb.core.data.selection.inspection import take_data
from dlrover_nb.core.data.source import open_source
from dlrover_nb.core.data.storage.cache import DataCache
from dlrover_nb.core.data.storage.file_set import N_OPEN
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.jobfile import dump_job, job_from, parse_job
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

MODEL = ModelSpec()


def clicks(n: int) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    return pd.DataFrame(
        {
            "label": rng.integers(0, 2, n),
            "user": rng.integers(10**15, 10**18, n),
            "price": np.where(rng.integers(0, 5, n) == 0, np.nan, rng.normal(0, 9, n).round(3)),
            "site": [f'say "{i}",\nor not' for i in rng.integers(0, 9, n)],
        }
    )


def zstd(content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return sink.getvalue().to_pybytes()


def csv_text(frame: pd.DataFrame, path: Path, pack: Callable[[bytes], bytes] = bytes) -> None:
    path.write_bytes(pack(frame.to_csv(index=False).encode()))


def arrays(frame: pd.DataFrame, path: Path) -> None:
    plain = {name: frame[name].to_numpy() for name in ("label", "user", "price")}
    np.savez(path, **plain, site=frame["site"].to_numpy(dtype="U32"))


def groups(frame: pd.DataFrame, path: Path) -> None:
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path, row_group_size=7)


WRITERS: dict[str, Callable[[pd.DataFrame, Path], None]] = {
    "csv": csv_text,
    "csv.gz": partial(csv_text, pack=gzip.compress),
    "csv.bz2": partial(csv_text, pack=bz2.compress),
    "csv.zst": partial(csv_text, pack=zstd),
    "parquet": groups,
    "npz": arrays,
}


def spec(*paths: object, **options: Any) -> DataSpec:
    given = {"name": "x", "data": {"path": [str(path) for path in paths], **options}}
    return job_from(given).data


def rows_of(data: DataSpec, *ranges: tuple[int, int]) -> list[Any]:
    reader = ShardReader(data, make_features(data, MODEL))
    batches = [reader.read(*each) for each in ranges]
    return [(b.ids.tolist(), b.dense.tolist(), b.labels.tolist()) for b in batches]


@pytest.mark.more
@settings(max_examples=12, deadline=None)
@given(
    cuts=st.lists(st.integers(0, 60), max_size=5),
    ends=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=4),
)
@pytest.mark.parametrize("ending", WRITERS)
def test_many_files_are_the_rows_of_one_in_the_same_order(
    ending: str, cuts: list[int], ends: list[tuple[int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, frame = tmp_path_factory.mktemp("rows"), clicks(60)
    WRITERS[ending](frame, folder / f"whole.{ending}")
    (folder / "parts").mkdir()
    places = [0, *sorted(cuts), 60]
    for i, (start, stop) in enumerate(pairwise(places)):
        WRITERS[ending](frame[start:stop], folder / "parts" / f"part-{i:03}.{ending}")
    (folder / "parts" / "_SUCCESS").touch()
    options = {"categorical": ["user", "site"], "numeric": ["price"], "holdout": 0.1}
    ranges = [(0, 60), *((min(each), max(each)) for each in ends)]
    one = rows_of(spec(folder / f"whole.{ending}", **options), *ranges)
    assert rows_of(spec(folder / "parts", **options), *ranges) == one
    assert rows_of(spec(folder / "parts" / f"part-*.{ending}", **options), *ranges) == one
    listed = sorted((folder / "parts").glob("part*"))
    assert rows_of(spec(*listed, **options), *ranges) == one


def test_a_list_keeps_its_order_and_each_pattern_in_it_is_sorted(tmp_path: Path) -> None:
    for i, name in enumerate(["b2.csv", "b1.csv", "a.csv"]):
        (tmp_path / name).write_text(f"label,x\n1,{i}\n")
    data = spec(tmp_path / "b*.csv", tmp_path / "a.csv")
    assert open_source(data).read(0, 3, ["x"]).column("x").to_pylist() == [1, 0, 2]


def test_what_a_submit_found_travels_and_later_files_are_no_part_of_the_job(tmp_path: Path) -> None:
    for i in range(3):
        (tmp_path / f"{i}.csv").write_text(f"label,x,t\n1,{i},7\n0,{i},{'9' if i < 2 else 'a'}\n")
    data = spec(tmp_path, holdout=0.0, categorical=["t"], numeric=["x"])
    features = make_features(data, MODEL)
    assert [file.n_row for file in features.files] == [2, 2, 2]
    before = ShardReader(data, features).read(0, 6)
    (tmp_path / "00.csv").write_text("label,x,t\n1,5,b\n")
    after = ShardReader(data, features).read(0, 6)
    assert after.ids.tolist() == before.ids.tolist()
    assert make_features(data, MODEL).n_train == 7


@pytest.mark.parametrize("ending", ["csv", "csv.gz", "parquet", "npz"])
def test_a_file_that_changes_is_refused_when_its_rows_are_read_and_a_touched_one_is_not(
    tmp_path: Path, ending: str, error_words
) -> None:
    frame = clicks(60)
    for i in range(3):
        WRITERS[ending](frame[20 * i : 20 * i + 20], tmp_path / f"{i}.{ending}")
    data = spec(tmp_path, holdout=0.0, categorical=["user", "site"])
    features = make_features(data, MODEL)
    reader = ShardReader(data, features)
    whole = reader.read(0, 60)
    os.utime(tmp_path / f"1.{ending}", (1, 1))
    assert reader.read(20, 40).ids.tolist() == whole.ids[20:40].tolist()
    changed = frame[20:40].assign(label=lambda rows: 1 - rows["label"])
    WRITERS[ending](changed, tmp_path / f"1.{ending}")
    # An open reader goes on with what it has unpacked: the former rows.
    again = ShardReader(data, features)
    for each in (again,) if ending == "csv.gz" else (reader, again):
        assert len(each.read(0, 20)) == 20  # another file
        with error_words(InvalidValueError):
            each.read(15, 25)
    (tmp_path / f"1.{ending}").unlink()
    with pytest.raises(NotFoundError, match="put it back"):
        ShardReader(data, features).read(20, 21)


def files(folder: Path, *texts: str) -> DataSpec:
    for i, text in enumerate(texts):
        (folder / f"{i}.csv").write_text(text)
    return DataSpec(DataFormat.CSV, str(folder))


@for_each(
    ("texts", "message"),
    [
        (["label,x\n1,2\n", "label,y\n1,2\n"], "1.csv has no column 'x', which .*0.csv has"),
        (["label,x\n1,2\n", "label,x,y\n1,2,3\n"], "1.csv has a column 'y', which .*0.csv does not have"),
        (["label,x\n1,2\n", "label,x\n1\n"], "line 2 of .*1.csv has 1 fields"),
        (["label,x\n1,2\n", ""], "1.csv has no header"),
        (["label,x\n", "label,x\n"], "has no rows"),
    ],
)
def test_columns_that_differ_name_the_file_and_the_column(
    tmp_path: Path, texts: Sequence[str], message: str
) -> None:
    with pytest.raises(InvalidValueError, match=message):
        make_features(files(tmp_path, *texts), MODEL)


def test_only_columns_that_are_used_must_agree_and_their_order_is_free(tmp_path: Path) -> None:
    data = files(tmp_path, "label,x,old\n1,2,a\n", "x,label,new\n3,0,b\n")
    with pytest.raises(InvalidValueError, match="'old'"):
        make_features(data, MODEL)
    named = DataSpec(DataFormat.CSV, data.path, numeric=("x",))
    assert open_source(named).read(0, 2, ["x", "label"]).to_pylist() == [
        {"x": 2.0, "label": 1.0},
        {"x": 3.0, "label": 0.0},
    ]
    excluded = DataSpec(DataFormat.CSV, data.path, exclude=("old", "new"))
    with pytest.raises(NotFoundError, match="'new'"):  # the first file has none
        make_features(excluded, MODEL)


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.array([1], pa.int32()), pa.array([2], pa.int64()), pa.int64()),
        (pa.array([1], pa.uint8()), pa.array([2], pa.int8()), pa.int64()),
        (pa.array([1], pa.int32()), pa.array([2.5]), pa.float64()),
        (pa.array(["a"]), pa.array(["b"], pa.large_string()), pa.large_string()),
        (pa.array(["a"]).dictionary_encode(), pa.array(["b"]), pa.string()),
        (pa.nulls(1), pa.array(["b"]), pa.string()),
        (pa.array(["a"]), pa.array([1]), None),
        (pa.array([True]), pa.array([1]), None),
        (pa.array([2**64 - 1], pa.uint64()), pa.array([1]), None),
        (pa.array([2**60 + 1]), pa.array([0.5]), None),
    ],
)
def test_typed_files_share_a_type_or_the_error_names_both(
    tmp_path: Path, one: pa.Array, other: pa.Array, common: pa.DataType | None
) -> None:
    for i, values in enumerate((one, other)):
        pq.write_table(pa.table({"label": [1], "x": [1.0], "c": values}), tmp_path / f"{i}.parquet")
    data = spec(tmp_path, categorical=["c"])
    if common is None:
        with pytest.raises(InvalidValueError, match=r"column 'c'.*[01].parquet.*the same way in all files"):
            make_features(data, MODEL)
    else:
        read = open_source(data).read(0, 2, ["c"])
        assert [row["c"] for row in read.to_pylist()] == [*one.to_pylist(), *other.to_pylist()]
        assert make_features(data, MODEL).files[1].n_row == 1


def test_more_files_than_stay_open_are_read(tmp_path: Path) -> None:
    n = 2 * N_OPEN + 3
    for i in range(n):
        pq.write_table(pa.table({"label": [i % 2], "x": [float(i)]}), tmp_path / f"{i:04}.parquet")
    data = spec(tmp_path, holdout=0.0)
    features, schema = take_data(data, MODEL)
    assert (schema.n_row, len(features.files)) == (n, n)
    source = open_source(data, features=features)
    for start, stop in [(0, n), (n - 2, n), (0, 1), (40, 90)]:
        assert source.read(start, stop, ["x"])["x"].to_pylist() == [float(i) for i in range(start, stop)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "no csv files at"),
        (lambda folder: (folder / "a.npy").touch(), "no csv files at .*, but a.npy"),
        (
            lambda folder: (folder / "june").mkdir(),
            r"holds folders \(june\), .*name the files with a pattern",
        ),
    ],
)
def test_a_folder_without_files_of_the_format_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    make(tmp_path)
    with pytest.raises(DlroverError, match=message):
        open_source(DataSpec(DataFormat.CSV, str(tmp_path)))


@pytest.mark.parametrize("ending", ["csv", "parquet", "npz"])
def test_columns_in_the_names_of_folders_are_columns(tmp_path: Path, ending: str) -> None:
    frame = clicks(60)
    frame["country"] = np.repeat(["de", "fr", "a=b c"], 20)
    frame["year"] = np.tile(np.repeat([2024, 2025], 10), 3).astype(str)
    for (country, year), part in frame.groupby(["country", "year"], sort=False):
        folder = tmp_path / f"country={quote(str(country))}" / f"year={year}"
        folder.mkdir(parents=True)
        WRITERS[ending](part.drop(columns=["country", "year"]), folder / f"part.{ending}")
    (tmp_path / "_temporary").mkdir()
    write, kind = (csv_text, "csv") if ending == "csv" else (groups, "parquet")
    whole = tmp_path.parent / f"{tmp_path.name}-whole.{kind}"
    write(frame.sort_values(["country", "year"], kind="stable"), whole)
    options = {"holdout": 0.0, "categorical": ["user", "site", "country", "year"], "numeric": ["price"]}
    want = rows_of(spec(whole, **options), (0, 60), (5, 15))
    for path in (tmp_path, tmp_path / "**" / f"*.{ending}"):
        data = spec(path, **options)
        assert rows_of(data, (0, 60), (5, 15)) == want
        features, schema = take_data(spec(path, label="label", holdout=0.0), MODEL)
        assert {"country", "year"} <= {column.name for column in features.categorical}
        assert not schema.unused
    one = next(tmp_path.glob(f"country=de/year=2024/*.{ending}"))
    assert "country" not in open_source(spec(one)).kinds, "a column of one value is none, unless it is named"
    read = open_source(spec(one, categorical=["country"])).read(2, 4, ["country", "price"])
    assert read.column("country").to_pylist() == ["de", "de"]
    features = make_features(spec(one, types=["country=category", "year=number"]), MODEL)
    assert "country" in [column.name for column in features.categorical]
    assert "year" in [column.name for column in features.numeric]


def test_a_folder_of_rows_without_a_value_and_a_file_outside_are_told(tmp_path: Path, error_words) -> None:
    for folder in ("c=x", "c=__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.csv").write_text("label,x\n1,2\n")
    assert open_source(spec(tmp_path)).read(0, 2, ["c"]).column("c").to_pylist() == [None, "x"]
    (tmp_path / "b.csv").write_text("label,x\n1,2\n")
    with error_words(InvalidValueError):
        open_source(spec(tmp_path / "c=x", tmp_path / "b.csv", categorical=["c"]))


def test_a_file_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("label,x\n1,2\n")
    with pytest.raises(InvalidValueError, match=r"names .*a\.csv twice"):
        open_source(spec(tmp_path / "*.csv", tmp_path / "a.csv"))


@pytest.mark.parametrize("ending", ["csv.gz", "csv.bz2", "csv.zst"])
@pytest.mark.parametrize("cut", [0.3, 0.95])
def test_a_compressed_file_that_is_cut_off_is_never_taken_for_whole(
    tmp_path: Path, ending: str, cut: float
) -> None:
    path = tmp_path / f"rows.{ending}"
    WRITERS[ending](clicks(3000), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * cut)])
    for _ in range(2):  # nothing was kept
        with pytest.raises(InvalidValueError, match=r"cannot be unpacked beyond .* damaged or cut off"):
            open_source(spec(path))
    path.write_bytes(whole)
    assert open_source(spec(path)).n_row == 3000


def test_a_job_file_keeps_its_list_of_files_and_infers_one_format(tmp_path: Path, error_words) -> None:
    job = parse_job("name: x\ndata: {path: [a.csv.gz, 'day/*.csv', 's3://b/c.csv?x=1']}", base=tmp_path)
    assert job.data.format == DataFormat.CSV
    assert job.data.paths == (f"{tmp_path}/a.csv.gz", f"{tmp_path}/day/*.csv", "s3://b/c.csv?x=1")
    assert parse_job(dump_job(job)) == job
    assert job.data.place == f"{tmp_path}/a.csv.gz and 2 more"
    with pytest.raises(InvalidValueError, match=r"several formats \(csv, parquet\)"):
        parse_job("name: x\ndata: {path: [a.csv, b.parquet]}")
    with error_words(InvalidValueError):
        parse_job("name: x\ndata: {path: [a.csv, 3]}")
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "a.parquet").touch()
    assert parse_job("name: x\ndata: {path: rows}", base=tmp_path).data.format == DataFormat.PARQUET
    assert JobSpec("x").data.place == "the census data"


def test_entries_of_the_cache_are_made_once_and_the_longest_unused_go_first(tmp_path: Path) -> None:
    cache, made, barrier = DataCache(tmp_path / "c", 25), [], threading.Barrier(4)

    def write(text: str, part: Path) -> None:
        made.append(text)
        part.write_text(text * 10)

    def get(text: str) -> Path:
        return cache.get(text, partial(write, text))

    def at_once() -> None:
        barrier.wait()
        assert get("a").read_text() == "a" * 10

    threads = [threading.Thread(target=at_once) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    os.utime(get("b"), (5, 5))
    os.utime(get("a"), (9, 9))
    assert get("c").exists()  # 30 bytes: b goes
    assert made == ["a", "b", "c"]
    get("a")
    assert made == ["a", "b", "c"]
    get("b")
    assert made == ["a", "b", "c", "b"]


def test_an_entry_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    cache = DataCache(tmp_path / "c", 1 << 20)

    def fail(part: Path) -> None:
        part.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.get("k", fail)
    assert cache.get("k", lambda part: part.write_text("whole") and None).read_text() == "whole"


def test_a_link_into_nowhere_is_no_file_that_is_left_out(tmp_path: Path, error_words) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    (folder / "a.csv").write_text("label,a\n1,2\n0,3\n")
    for name in (".b.csv", "_b.csv", "b.parquet"):
        (folder / name).symlink_to(tmp_path / "gone")
    assert make_features(DataSpec(DataFormat.CSV, str(folder)), MODEL).n_train == 2
    (folder / "b.csv").symlink_to(tmp_path / "gone")
    for path in (folder, folder / "*.csv"):
        with error_words(NotFoundError):
            make_features(DataSpec(DataFormat.CSV, str(path)), MODEL)
