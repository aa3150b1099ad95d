"""Files that hold only what changed: read as whole ones, in any place, whatever is deleted."""

from __future__ import annotations

import shutil
from pathlib import Path

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import Layout, increments, read_url
from dlrover_nb.core.runtime.checkpoints.buffer import nothing
from dlrover_nb.core.runtime.checkpoints.increments import Chain, Changes
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import fill, image_of
from dlrover_nb.core.runtime.ps.server import ChangedRows
from dlrover_nb.core.runtime.store import ParameterStore, StorePart
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.job.spec_choices import Embedding
from dlrover_nb.core.structs.training.bucket_loads import N_BUCKET
from dlrover_nb.core.structs.training.checkpoints import PartSource

MODEL = ModelSpec(embedding_dim=3, seed=5, embedding=Embedding.HASH)
N_DENSE = 5
ALL = np.ones(N_BUCKET, np.bool_)


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch):
    monkeypatch.setattr(increments, "LEAST_BYTES", 0)


@pytest.fixture(params=["path", "memory://"])
def place(request, tmp_path):
    if request.param == "path":
        yield str(tmp_path / "job")
        return
    yield "memory://increments-tests/job"
    fsspec.filesystem("memory").rm("/increments-tests", recursive=True)


def new_store():
    return ParameterStore(MODEL, 1, N_DENSE)


class Saver:
    """A PS that trains and saves; every checkpoint has a folder of its number."""

    def __init__(self, place, seed=0):
        self.place, self.rng = place, np.random.default_rng(seed)
        self.store, self.chain, self.changed = new_store(), Chain(), ChangedRows()
        self.store.init_dense(np.zeros(N_DENSE, np.float32))
        self.whole, self.sources, self.sizes = {}, {}, {}

    def push(self, n, most=1000):
        ids = self.rng.choice(most, n, replace=False).astype(np.int64)
        self.store.push(ids, self.rng.normal(size=(n, MODEL.row_width)).astype(np.float32))
        self.store.push_dense(self.rng.normal(size=N_DENSE).astype(np.float32))

    def drop(self):
        self.store.drop(self.rng.random(N_BUCKET) < 0.1)

    def cut(self, number):
        cut = self.store.cut()
        self.changed.on_cut(number, cut.changed)
        cut.stop()
        part = self.store.export()
        self.whole[number] = StorePart(part.ids.copy(), part.table.copy(), 0, part.dense.copy())

    def write(self, number, between=nothing):
        image = np.concatenate(list(Layout(image_of(self.whole[number])).chunks()))
        url = f"{self.place}/{number}/ps-0.part"
        added = self.chain.write(number, url, image, self.changed.up_to(number), between)
        self.changed.on_written(number)
        self.sources[number], self.sizes[number] = PartSource(url, added.sha256), added.n_byte

    def save(self, number):
        """Save; return whether the file is whole."""
        self.cut(number)
        self.write(number)
        return self.chain.is_whole

    def assert_read(self, number, source=None):
        found = fill(new_store, [source or self.sources[number]], ALL).store.export()
        for name in ("ids", "table", "dense"):
            np.testing.assert_array_equal(getattr(found, name), getattr(self.whole[number], name))


def delete(url):
    fs, path = fsspec.core.url_to_fs(url)
    fs.rm(path, recursive=True)


STEPS = st.lists(st.sampled_from(["little", "new", "much", "drop", "fails", "cut only", "gone"]), max_size=12)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 9), STEPS)
def test_every_file_is_read_as_a_whole_one_whatever_came_between(tmp_path_factory, seed, steps):
    saver = Saver(str(tmp_path_factory.mktemp("saver")), seed)
    saver.push(400)
    saver.save(0)
    for number, step in enumerate(steps, 1):
        saver.push({"much": 500, "new": 60}.get(step, 20), 5000 if step == "new" else 1000)
        if step == "drop":
            saver.drop()
        saver.cut(number)
        if step == "cut only":
            continue
        if step == "gone":
            shutil.rmtree(Path(saver.sources[max(saver.sources)].url).parent)
            del saver.sources[max(saver.sources)]
        if step == "fails":
            with pytest.raises(CheckpointError, match="full"):
                saver.write(number, _full)
            shutil.rmtree(Path(saver.place) / str(number), ignore_errors=True)
        elif step != "gone" or saver.sources:
            saver.write(number)
        if not saver.sources:
            saver.write(number)
    for number in saver.sources:
        saver.assert_read(number)


def _full():
    raise CheckpointError("the disk is full")


def test_a_file_holds_little_where_little_changed_and_outlives_what_it_was_made_from(place):
    saver = Saver(place)
    saver.push(900)
    assert saver.save(1)
    n_whole = saver.sizes[1]
    for number in (2, 3, 4):
        saver.push(20)
        assert not saver.save(number)
    fs, path = fsspec.core.url_to_fs(saver.sources[4].url)
    assert fs.info(path)["size"] < n_whole / 10
    assert saver.sizes[4] < 1.3 * n_whole
    for number in (1, 2, 3):
        saver.assert_read(number)
        delete(f"{place}/{number}")
    saver.assert_read(4)


def test_a_folder_that_is_copied_elsewhere_is_read_there(tmp_path):
    saver = Saver(str(tmp_path / "job"))
    saver.push(900)
    for number in (1, 2, 3):
        saver.push(20)
        saver.save(number)
    shutil.copytree(tmp_path / "job" / "3", tmp_path / "there")
    shutil.rmtree(tmp_path / "job")
    moved = PartSource(str(tmp_path / "there" / "ps-0.part"), saver.sources[3].sha256)
    saver.assert_read(3, moved)


def test_a_chain_begins_anew_after_some_files_and_when_much_has_changed(place):
    saver = Saver(place)
    saver.push(900)
    kinds = []
    for number in range(12):
        saver.push(5)
        kinds.append(saver.save(number))
    assert kinds == [number % increments.MOST_FILES == 0 for number in range(12)]
    saver.push(600)
    assert saver.save(12)
    for number in saver.sources:
        saver.assert_read(number)


def test_small_parts_are_written_whole(place, monkeypatch):
    monkeypatch.setattr(increments, "LEAST_BYTES", 1 << 20)
    saver = Saver(place)
    for number in range(3):
        saver.push(20)
        assert saver.save(number)


def test_a_base_that_is_gone_makes_the_next_file_whole(place):
    saver = Saver(place)
    saver.push(900)
    saver.save(1)
    delete(f"{place}/1")
    saver.push(20)
    assert saver.save(2)
    saver.assert_read(2)


@pytest.mark.parametrize("at", [100, -1])
def test_a_damaged_base_is_noticed(tmp_path, at):
    saver = Saver(str(tmp_path))
    saver.push(900)
    for number in (1, 2):
        saver.push(20)
        saver.save(number)
    path = tmp_path / "2" / "ps-0.part.1"
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        saver.assert_read(2)


@pytest.mark.parametrize("name", ["../1/ps-0.part", "/etc/passwd", ".hidden"])
def test_a_base_elsewhere_is_refused(tmp_path, name):
    image = image_of(StorePart(np.arange(3), np.zeros((3, 8), np.float32), 0, np.zeros((2, 0), np.float32)))
    image.header["base"] = name
    written = increments.write_url(f"{tmp_path}/part", Layout(image).chunks())
    with pytest.raises(CheckpointError, match="no file beside it"):
        fill(new_store, [PartSource(f"{tmp_path}/part", written.sha256)], ALL)


def test_a_file_that_adds_to_another_and_repeats_a_row_far_behind_is_refused(tmp_path, error_words):
    ids = np.arange(100_000)
    base = StorePart(ids, np.zeros((len(ids), 8), np.float32), 0, np.zeros((2, N_DENSE), np.float32))
    below = increments.write_url(f"{tmp_path}/part.1", Layout(image_of(base)).chunks())
    ids[-1] = 7
    image = image_of(base)
    image.header.update(base="part.1", base_sha256=below.sha256)
    written = increments.write_url(f"{tmp_path}/part", Layout(image).chunks())
    with error_words(CheckpointError):
        fill(new_store, [PartSource(f"{tmp_path}/part", written.sha256)], ALL)


def test_a_selected_layout_is_that_of_the_selected_rows():
    arrays = {"ids": np.arange(40_000), "table": np.random.default_rng(0).random((40_000, 3), np.float32)}
    rows = np.random.default_rng(1).random(40_000) < 0.3
    image = increments.Image({}, arrays)
    chosen = Layout(increments.Image({}, {name: array[rows] for name, array in arrays.items()}))
    lazily = Layout(image, dict.fromkeys(arrays, rows))
    assert lazily.n_byte == chosen.n_byte
    assert b"".join(bytes(c) for c in lazily.chunks()) == b"".join(bytes(c) for c in chosen.chunks())
    nothing_of_it = Layout(image, dict.fromkeys(arrays, np.zeros(40_000, np.bool_)))
    assert sum(len(chunk) for chunk in nothing_of_it.chunks()) == nothing_of_it.n_byte


def test_what_changes_while_a_file_is_written_is_in_the_next_but_one():
    changed = ChangedRows()
    changed.on_cut(1, None)
    assert changed.up_to(1) is None
    changed.on_written(1)
    changed.on_cut(2, np.array([True, False, False]))
    assert_changes(changed.up_to(2), 1, [True, False, False])
    changed.on_cut(3, np.array([False, False, True, True]))  # the file of 2 failed
    assert_changes(changed.up_to(3), 1, [True, False, True, True])
    assert changed.up_to(2) is None
    changed.on_written(2)
    assert changed.up_to(3) is None, "a cut came before the file was there"
    changed.on_written(3)
    changed.on_cut(4, np.array([False, True, False, False]))
    assert_changes(changed.up_to(4), 3, [False, True, False, False])
    changed.on_cut(5, None)
    assert changed.up_to(5) is None


def assert_changes(found, since, rows):
    assert isinstance(found, Changes)
    assert found.since == since
    np.testing.assert_array_equal(found.rows, rows)


def test_a_whole_file_is_the_image(tmp_path):
    saver = Saver(str(tmp_path))
    saver.push(50)
    saver.save(1)
    image = read_url(saver.sources[1].url, saver.sources[1].sha256)
    np.testing.assert_array_equal(image.arrays["ids"], saver.whole[1].ids)
