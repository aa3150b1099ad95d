"""Rows that were encoded before are the same as those that are encoded anew, whatever befell them meanwhile."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.runtime.single_process import train_single
from support.waiting import until

from dlrover_nb.core.data import Batch, EncodedRows, ShardReader, encoded_rows, make_features
from dlrover_nb.core.data.storage import cache, versions
from dlrover_nb.core.data.storage import encoded_rows as module
from dlrover_nb.core.data.storage.encoded_rows import encoder_version
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs.data.features import SequenceSpec
from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
from dlrover_nb.core.structs.job.spec_choices import DataFormat

if TYPE_CHECKING:
    from collections.abc import Iterator


N_ROW = 240
ENCODING = "e" * 64
GIB = 1 << 30
WITH_FIXTURES = settings(
    deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def clicks() -> pd.DataFrame:
    rng = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "label": rng.integers(0, 2, N_ROW),
            "price": np.where(rng.integers(0, 5, N_ROW) == 0, np.nan, rng.normal(0, 9, N_ROW)),
            "site": [f"s{i}" for i in rng.integers(0, 30, N_ROW)],
            "seen": ["|".join(map(str, range(i % 4))) for i in range(N_ROW)],
        }
    )


def written(folder: Path, kind: str) -> DataSpec:
    """Write the rows to two files; return the data."""
    frame = clicks()
    for number, part in enumerate((frame[:100], frame[100:])):
        path = folder / f"{number}.{kind}"
        if kind == "csv":
            part.to_csv(path, index=False)
        elif kind == "parquet":
            pq.write_table(pa.Table.from_pandas(part, preserve_index=False), path, row_group_size=30)
        else:
            label, price = part["label"].to_numpy(), part["price"].to_numpy()
            site, seen = part["site"].to_numpy("U8"), part["seen"].to_numpy("U16")
            np.savez(path, label=label, price=price, site=site, seen=seen)
    return files_of(folder, kind)


def files_of(folder: Path, kind: str) -> DataSpec:
    form = {"npz": DataFormat.NUMPY}.get(kind) or DataFormat(kind)
    return DataSpec(form, str(folder / f"*.{kind}"), sequences=(SequenceSpec("seen", 3),))


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files count as settled as soon as they are written: no test waits two seconds."""
    monkeypatch.setattr(versions, "SETTLED_NS", -(10**18))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return an empty folder of encoded rows."""
    monkeypatch.setenv(cache.FOLDER_VAR, str(tmp_path / "cache"))
    monkeypatch.delenv(cache.SIZE_VAR, raising=False)
    cache.data_cache.cache_clear()
    yield tmp_path / "cache" / module.FOLDER
    cache.data_cache.cache_clear()


def is_equal(one: Batch, other: Batch) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in ("ids", "dense", "labels")]
    return all(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs)


class Readers:
    """A reader without a cache, and any number of processes with one."""

    def __init__(self, data: DataSpec, *, hash_size: int | None = None) -> None:
        self.data, model = data, ModelSpec()
        self.features = make_features(
            data, model if hash_size is None else replace(model, hash_size=hash_size)
        )
        self.plain = ShardReader(data, self.features)

    def cached(self) -> tuple[ShardReader, EncodedRows]:
        encoded = encoded_rows(self.data, self.features)
        assert encoded is not None
        return ShardReader(self.data, self.features, encoded=encoded), encoded


RANGES = st.lists(st.tuples(st.integers(0, N_ROW), st.integers(0, 150)), min_size=1, max_size=8)


@pytest.mark.parametrize("kind", ["parquet", "csv", "npz"])
@WITH_FIXTURES
@given(ranges=RANGES)
def test_any_ranges_are_the_same_to_the_bit_in_each_pass_and_process(
    tmp_path_factory: pytest.TempPathFactory, own_cache: Path, kind: str, ranges: list[tuple[int, int]]
) -> None:
    folder = tmp_path_factory.getbasetemp() / kind
    if not folder.exists():
        folder.mkdir()
        written(folder, kind)
    readers = Readers(files_of(folder, kind))
    for n_pass in range(3):
        cached, encoded = readers.cached()
        for start, length in ranges:
            stop = min(start + length, N_ROW)
            assert is_equal(cached.read(start, stop), readers.plain.read(start, stop))
        if n_pass:
            assert encoded.uses.n_miss == 0
    shutil.rmtree(own_cache)


@WITH_FIXTURES
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), is_cut=st.sampled_from([False, True]))
def test_an_entry_that_was_damaged_anywhere_is_noticed_and_made_anew(
    tmp_path: Path, own_cache: Path, place: float, *, bit: int, is_cut: bool
) -> None:
    shutil.rmtree(own_cache, ignore_errors=True)
    readers = Readers(written(tmp_path, "parquet"))
    cached, _ = readers.cached()
    cached.read(20, 180)
    (entry,) = own_cache.iterdir()
    good = entry.read_bytes()
    at = int(place * len(good))
    entry.write_bytes(good[:at] if is_cut else good[:at] + bytes([good[at] ^ (1 << bit)]) + good[at + 1 :])
    again, encoded = readers.cached()
    assert is_equal(again.read(20, 180), readers.plain.read(20, 180))
    assert encoded.uses == module.Uses(0, 1)
    assert entry.read_bytes() == good


def test_training_has_the_same_losses_and_scores_to_the_bit_with_rows_that_were_encoded_before(
    tmp_path: Path, own_cache: Path
) -> None:
    spec = JobSpec("twice", data=written(tmp_path, "parquet"), batch_size=16, shard_batches=3, n_epoch=3)
    features = make_features(spec.data, spec.model)
    plain = train_single(spec, features)
    for n_miss in (6, 0):  # five shards and the held-out rows, each once
        encoded = encoded_rows(spec.data, features)
        assert encoded is not None
        again = train_single(spec, features, encoded=encoded)
        assert again.losses == plain.losses
        assert again.scores.tobytes() == plain.scores.tobytes()
        assert encoded.uses == module.Uses(16 - n_miss, n_miss)


def test_an_entry_under_the_name_of_another_is_noticed(tmp_path: Path, own_cache: Path) -> None:
    readers = Readers(written(tmp_path, "parquet"))
    cached, _ = readers.cached()
    cached.read(0, 50)
    (first,) = own_cache.iterdir()
    cached.read(50, 100)
    (second,) = set(own_cache.iterdir()) - {first}
    shutil.copy(first, second)
    assert is_equal(readers.cached()[0].read(50, 100), readers.plain.read(50, 100))


def test_a_file_that_was_written_again_with_its_former_time_gives_its_new_rows(
    tmp_path: Path, own_cache: Path
) -> None:
    """What changes lies between the parts of a large file whose hash a submit takes."""
    rows = np.zeros((30_000, 3), [("v", "<f8")])["v"]
    rows[::2, 0], rows[:, 1] = 1, np.arange(30_000)
    path = tmp_path / "rows.npy"
    np.save(path, rows)
    readers = Readers(DataSpec(DataFormat.NUMPY, str(path), label="c0", numeric=("c1", "c2")))
    before = readers.cached()[0].read(0, 30_000)
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(128 + 327 * 24 + 16)
        file.write(np.float64(5).tobytes())
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert path.stat().st_size == stat.st_size
    after = readers.cached()[0].read(0, 30_000)
    assert is_equal(after, ShardReader(readers.data, readers.features).read(0, 30_000))
    assert np.flatnonzero((before.dense != after.dense).any(axis=1)).tolist() == [327]


def test_a_file_that_is_not_that_of_the_submit_still_ends_the_job(
    tmp_path: Path, own_cache: Path, error_words
) -> None:
    readers = Readers(written(tmp_path, "parquet"))
    cached, _ = readers.cached()
    cached.read(0, 50)
    pq.write_table(pa.Table.from_pandas(clicks()[5:105], preserve_index=False), tmp_path / "0.parquet")
    for reader in (cached, readers.cached()[0]):
        with error_words(InvalidValueError):
            reader.read(0, 50)


def test_rows_of_a_file_that_was_written_a_moment_ago_are_not_kept(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "SETTLED_NS", 10**18)
    readers = Readers(written(tmp_path, "csv"))
    cached, encoded = readers.cached()
    assert is_equal(cached.read(0, 50), readers.plain.read(0, 50))
    assert encoded.uses == module.Uses(0, 0)
    assert not own_cache.exists()


def test_another_encoding_never_gets_rows_of_this_one(tmp_path: Path, own_cache: Path) -> None:
    data = written(tmp_path, "parquet")
    one, other = Readers(data, hash_size=16), Readers(data, hash_size=32)
    for readers in (one, other, one, other):
        assert is_equal(readers.cached()[0].read(0, 100), readers.plain.read(0, 100))
    assert len(list(own_cache.iterdir())) == 2


def test_the_version_of_the_encoder_is_another_one_after_any_change_of_its_source(tmp_path: Path) -> None:
    core = Path(module.__file__).parents[2]
    for room in ("data", "structs"):
        shutil.copytree(core / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    assert encoder_version(tmp_path) == encoder_version()
    sources = (
        "data/encode.py", "data/formats/parquet.py", "data/types/number_text.py", "structs/data/features.py",
    )  # fmt: skip
    for name in sources:
        source = tmp_path / name
        text = source.read_text()
        source.write_text(text + "\n")
        encoder_version.cache_clear()
        assert encoder_version(tmp_path) != encoder_version(), name
        source.write_text(text)
    encoder_version.cache_clear()
    assert encoder_version(tmp_path) == encoder_version()
    assert encoder_version(tmp_path / "nothing") is None


def batch_of(n_row: int, seed: int = 0) -> Batch:
    rng = np.random.default_rng(seed)
    ids, dense = rng.integers(0, 2**62, (n_row, 3)), rng.random((n_row, 2), np.float32)
    return Batch(ids, dense, rng.integers(0, 2, n_row).astype(np.float32))


PUTS = st.lists(st.tuples(st.booleans(), st.integers(0, 40), st.integers(0, 200)), max_size=30)


@WITH_FIXTURES
@given(puts=PUTS, most_bytes=st.integers(0, 30_000))
def test_entries_of_all_data_never_take_more_than_they_may(
    tmp_path: Path, puts: list[tuple[bool, int, int]], most_bytes: int
) -> None:
    folder = tmp_path / "rows"
    of_data = [EncodedRows(folder, most_bytes, letter * 64) for letter in "ab"]
    for is_second, number, n_row in puts:
        of_data[is_second].put(number, number + n_row, "v", batch_of(n_row, number))
        n_byte = sum(path.stat().st_size for path in folder.iterdir())
        assert n_byte <= most_bytes
        stored = of_data[is_second].get(number, number + n_row, "v")
        assert stored is None or is_equal(stored, batch_of(n_row, number))
    shutil.rmtree(folder, ignore_errors=True)


def test_rows_of_other_data_make_room_those_unused_for_longest_first_and_own_ones_stay(
    tmp_path: Path,
) -> None:
    folder, size = tmp_path / "rows", 100 * (3 * 8 + 2 * 4 + 4) + 100
    old, new = (EncodedRows(folder, 6 * size, letter * 64) for letter in "ab")
    for number in range(4):
        old.put(number, number + 100, "v", batch_of(100, number))
    for age, entry in enumerate(sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime_ns)):
        os.utime(entry, (age, age))
    assert old.get(0, 100, "v") is not None  # used last now
    for number in range(9):
        new.put(number, number + 100, "v", batch_of(100, number))
    assert [old.get(number, number + 100, "v") is not None for number in range(4)] == [False] * 4
    n_kept = sum(new.get(number, number + 100, "v") is not None for number in range(9))
    assert n_kept >= 4
    assert new.get(0, 100, "v") is not None  # the next pass may begin with it


def test_files_of_others_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    folder, size = tmp_path / "rows", 100 * (3 * 8 + 2 * 4 + 4) + 100
    folder.mkdir()
    names = {"notes.txt", "june.rows", "archive.part", "e" * 16 + "-mine.rows"}
    for name in names:
        (folder / name).write_bytes(b"x" * 10 * size)
        os.utime(folder / name, (0, 0))
    for letter in "ab":
        encoded = EncodedRows(folder, 3 * size, letter * 64)
        for number in range(9):
            encoded.put(number, number + 100, "v", batch_of(100, number))
    assert names <= {path.name for path in folder.iterdir()}


def test_a_damaged_entry_that_cannot_be_deleted_harms_nothing(tmp_path: Path) -> None:
    encoded = EncodedRows(tmp_path / "rows", GIB, ENCODING)
    encoded.put(0, 50, "v", batch_of(50))
    (entry,) = (tmp_path / "rows").iterdir()
    entry.unlink()
    entry.mkdir()
    assert encoded.get(0, 50, "v") is None


def test_a_folder_of_another_user_is_not_used(own_cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    if os.geteuid():
        pytest.skip("only root gives a folder away")
    own_cache.mkdir(parents=True)
    os.chown(own_cache, 12345, 12345)
    data = DataSpec()
    assert encoded_rows(data, make_features(data, ModelSpec())) is None
    assert "another user" in caplog.text


def test_a_folder_that_cannot_be_written_to_is_said_once_and_rows_are_as_without(
    tmp_path: Path, own_cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    readers = Readers(written(tmp_path, "parquet"))
    own_cache.parent.mkdir()
    own_cache.write_text("in the way")
    cached, _ = readers.cached()
    for start in (0, 50, 100, 0):
        assert is_equal(cached.read(start, start + 50), readers.plain.read(start, start + 50))
    assert [record.levelname for record in caplog.records] == ["WARNING"]


FULL_DISK = """
import resource, sys
from pathlib import Path
from dlrover_nb.core.data.storage.encoded_rows import EncodedRows
from data.test_encoded_rows import batch_of, is_equal
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
encoded = EncodedRows(Path(sys.argv[1]), 1 << 30, "e" * 64)
encoded.put(0, 50, "v", batch_of(50))
encoded.put(50, 1050, "v", batch_of(1000))
encoded.put(1050, 1100, "v", batch_of(50))
assert is_equal(encoded.get(0, 50, "v"), batch_of(50))
assert encoded.get(50, 1050, "v") is None
"""


@pytest.mark.more
def test_a_disk_that_fills_up_within_an_entry_leaves_those_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    run_python(FULL_DISK, str(folder))
    assert len(list(folder.iterdir())) == 1


def run_python(code: str, *arguments: str) -> None:
    tests = Path(__file__).parents[2]
    path = os.pathsep.join([str(tests), str(tests / "core"), str(tests.parent)])
    environment = os.environ | {"PYTHONPATH": path}
    ran = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, env=environment
    )
    assert ran.returncode == 0, ran.stderr


def write_and_read(folder: Path, seed: int) -> None:
    encoded = EncodedRows(folder, GIB, ENCODING)
    for number in np.random.default_rng(seed).integers(0, 5, 200).tolist():
        stored = encoded.get(number, number + 300, "v")
        assert stored is None or is_equal(stored, batch_of(300, number))
        if stored is None or number == 0:
            encoded.put(number, number + 300, "v", batch_of(300, number))


def write_for_ever(folder: Path) -> None:
    encoded = EncodedRows(folder, GIB, ENCODING)
    while True:
        encoded.put(0, 200_000, "v", batch_of(200_000))


@pytest.mark.more
def test_processes_that_write_the_same_entries_at_once_all_read_what_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=write_and_read, args=(folder, seed)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert {path.suffix for path in folder.iterdir()} == {".rows"}


@pytest.mark.more
def test_a_killed_writer_leaves_no_entry_that_is_not_whole(tmp_path: Path) -> None:
    folder = tmp_path / "rows"
    context = multiprocessing.get_context("spawn")
    for _ in range(5):
        process = context.Process(target=write_for_ever, args=(folder,))
        process.start()
        until(lambda: folder.exists() and any(path.suffix == ".part" for path in folder.iterdir()))
        assert process.pid is not None
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        stored = EncodedRows(folder, GIB, ENCODING).get(0, 200_000, "v")
        assert stored is None or is_equal(stored, batch_of(200_000))


@pytest.mark.parametrize(
    ("variables", "is_on"),
    [
        ({}, True),
        ({cache.SIZE_VAR: "0"}, False),
        ({cache.SIZE_VAR: "0.5"}, True),
        ({cache.SIZE_VAR: "much"}, False),
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),  # a folder is named
        ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", cache.FOLDER_VAR: ""}, False),
    ],
)
def test_the_environment_says_whether_rows_are_kept(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch, *, variables: dict[str, str], is_on: bool
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    cache.data_cache.cache_clear()
    data = DataSpec()
    assert (encoded_rows(data, make_features(data, ModelSpec())) is not None) is is_on


def test_rows_that_ship_with_the_package_are_kept_too(own_cache: Path) -> None:
    readers = Readers(DataSpec())
    for n_hit in (0, 1):
        cached, encoded = readers.cached()
        assert is_equal(cached.read(1_000, 2_000), readers.plain.read(1_000, 2_000))
        assert encoded.uses.n_hit == n_hit
