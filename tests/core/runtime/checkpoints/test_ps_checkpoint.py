from __future__ import annotations

import errno
import hashlib
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.cases import for_each

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import FlashCheckpoint, image_files, ps_checkpoint
from dlrover_nb.core.runtime.checkpoints.memory_names import SHM
from dlrover_nb.core.runtime.store import ParameterStore, StorePart, even_bucket_owner, owned_buckets
from dlrover_nb.core.structs.job.job import ModelSpec
from dlrover_nb.core.structs.training.checkpoints import PartSource


def part(n=100, n_dense=11, seed=0):
    rng = np.random.default_rng(seed)
    f4 = np.float32
    return StorePart(
        rng.permutation(10 * n)[:n],
        rng.normal(size=(n, 10)).astype(f4),
        42,
        rng.normal(size=(2, n_dense)).astype(f4),
    )


def names(folder):
    return [path.name for path in folder.iterdir()]


def assert_equal(a, b):
    assert a.dense_offset == b.dense_offset
    for name in ("ids", "table", "dense"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@pytest.mark.parametrize(("n", "n_dense"), [(0, 0), (0, 3), (7, 0), (1000, 50)])
def test_read_returns_what_was_written(tmp_path, n, n_dense):
    written = ps_checkpoint.write(tmp_path / "deep" / "a", part(n, n_dense))
    assert written.n_byte == (tmp_path / "deep" / "a").stat().st_size
    assert_equal(ps_checkpoint.read(tmp_path / "deep" / "a", written.sha256), part(n, n_dense))
    assert names(tmp_path / "deep") == ["a"]


def test_the_caller_is_called_between_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(image_files, "_WRITE_BYTES", 256)
    calls = []
    written = ps_checkpoint.write(tmp_path / "a", part(), between=lambda: calls.append(1))
    assert len(calls) > written.n_byte // 256
    assert_equal(ps_checkpoint.read(tmp_path / "a", written.sha256), part())


@for_each("at", [0, 9, 40, 3000, -1])
def test_one_flipped_byte_is_noticed(tmp_path, at):
    path = tmp_path / "a"
    written = ps_checkpoint.write(path, part())
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        ps_checkpoint.read(path, written.sha256)


@for_each("keep", [0, 5, 11, 50, 2000])
def test_a_truncated_file_is_refused_even_under_its_own_checksum(tmp_path, keep):
    path = tmp_path / "a"
    ps_checkpoint.write(path, part())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError):
        ps_checkpoint.read(path, hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        ps_checkpoint.read(tmp_path / "none", "0" * 64)


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    good = ps_checkpoint.write(path, part(seed=1))

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left.*unchanged"):
        ps_checkpoint.write(path, part(seed=2))
    assert names(tmp_path) == ["a"]
    assert_equal(ps_checkpoint.read(path, good.sha256), part(seed=1))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_a_clear_error(tmp_path):
    name = f".a.{os.getpid()}.tmp"
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left"):
        ps_checkpoint.write(tmp_path / "a", part())
    assert names(tmp_path) == []


MODEL = ModelSpec(embedding_dim=3)  # rows of 4 values and Adagrad's 4 sums


class Saved:
    """Two PS whose parts of one checkpoint are in files, and in the memory of this machine."""

    def __init__(self, folder):
        self.parts, self.sources, self.flashes = [], [], []
        for index in range(2):
            ids = np.flatnonzero(owned_buckets(even_bucket_owner(2), index)[np.arange(500) % 256])
            rng = np.random.default_rng(index)
            dense = rng.random((2, 10), np.float32)
            saved = StorePart(ids, rng.random((len(ids), 8), np.float32), 10 * index, dense)
            written = ps_checkpoint.write(folder / f"{index}.part", saved)
            flash = FlashCheckpoint("test", folder, f"ps-{index}")
            image = ps_checkpoint.image_of(saved)
            memory = flash.copy(1, image.header, image.arrays)
            self.parts.append(saved)
            self.flashes.append(flash)
            self.sources.append(PartSource(str(folder / f"{index}.part"), written.sha256, memory))

    def fill(self, sources):
        """Fill the store of a single PS, which owns all."""
        made = []

        def new_store():
            made.append(ParameterStore(MODEL, 1000, 20))
            return made[-1]

        filled = ps_checkpoint.fill(new_store, sources, np.ones(256, np.bool_))
        assert filled.store is made[-1]
        return filled

    def assert_held_by(self, store):
        exported = store.export()
        order = np.argsort(exported.ids)
        ids = np.concatenate([part.ids for part in self.parts])
        table = np.concatenate([part.table for part in self.parts])
        np.testing.assert_array_equal(exported.ids[order], ids[np.argsort(ids)])
        np.testing.assert_array_equal(exported.table[order], table[np.argsort(ids)])
        np.testing.assert_array_equal(exported.dense, np.hstack([part.dense for part in self.parts]))


@pytest.fixture
def saved(tmp_path):
    each = Saved(tmp_path)
    yield each
    for flash in each.flashes:
        flash.close(unlink=True)


def test_a_store_is_filled_from_memory_though_no_file_is_left(saved):
    for source in saved.sources:
        Path(source.url).unlink()
    filled = saved.fill(saved.sources)
    assert filled.n_from_memory == 2
    saved.assert_held_by(filled.store)


@pytest.mark.parametrize("lost", [0, 1])
def test_what_memory_no_longer_holds_is_read_from_its_file(saved, lost):
    saved.flashes[lost].copy(2, {}, {})
    saved.flashes[lost].copy(3, {}, {})
    filled = saved.fill(saved.sources)
    assert filled.n_from_memory == 1
    saved.assert_held_by(filled.store)


def test_a_store_is_filled_from_files_alone(saved):
    filled = saved.fill([PartSource(source.url, source.sha256) for source in saved.sources])
    assert filled.n_from_memory == 0
    saved.assert_held_by(filled.store)


def test_memory_that_is_overwritten_while_it_is_loaded_voids_what_was_loaded(saved, monkeypatch):
    load, done = ParameterStore.load, []

    def load_and_lose(store, part, owned, between, **which):
        load(store, part, owned, between, **which)
        if not done:
            done.append(1)
            (SHM / saved.sources[0].memory.name).write_bytes(bytes(8192))

    monkeypatch.setattr(ParameterStore, "load", load_and_lose)
    filled = saved.fill(saved.sources)
    assert filled.n_from_memory == 1
    saved.assert_held_by(filled.store)


def test_a_part_that_is_nowhere_is_one_clear_line(saved, error_words):
    gone = [PartSource("", "", source.memory) for source in saved.sources]
    saved.flashes[1].close(unlink=True)
    saved.flashes.pop()
    with error_words(CheckpointError):
        saved.fill(gone)


def test_a_file_of_other_arrays_is_refused(saved, tmp_path, error_words):
    image = ps_checkpoint.Image({}, {"ids": np.arange(3)})
    written = image_files.write_url(str(tmp_path / "other"), ps_checkpoint.Layout(image).chunks())
    with error_words(CheckpointError):
        saved.fill([PartSource(str(tmp_path / "other"), written.sha256)])


APART = 100_000  # rows between two that are the same: they are read in different blocks


def test_a_part_that_repeats_a_row_far_behind_is_refused(saved, tmp_path, error_words):
    ids = np.arange(APART)
    ids[-1] = 7
    twice = StorePart(ids, np.zeros((APART, 8), np.float32), 0, np.zeros((2, 20), np.float32))
    written = ps_checkpoint.write(tmp_path / "twice", twice)
    source = PartSource(str(tmp_path / "twice"), written.sha256)
    with error_words(CheckpointError):
        ps_checkpoint.fill(lambda: ParameterStore(MODEL, APART, 20), [source], np.ones(256, np.bool_))


def test_a_row_that_two_parts_hold_is_refused(saved, error_words):
    row = saved.parts[0].ids[3]
    saved.parts[1].ids[5] = row
    url = saved.sources[1].url
    saved.sources[1] = PartSource(url, ps_checkpoint.write(Path(url), saved.parts[1]).sha256)
    with error_words(CheckpointError):
        saved.fill(saved.sources)


def test_where_a_copy_in_memory_repeats_a_row_its_file_is_read(saved):
    row, other = saved.parts[0].ids[3], saved.parts[1]
    image = ps_checkpoint.image_of(replace(other, ids=np.where(other.ids == other.ids[5], row, other.ids)))
    memory = saved.flashes[1].copy(2, image.header, image.arrays)
    filled = saved.fill([saved.sources[0], replace(saved.sources[1], memory=memory)])
    assert filled.n_from_memory == 1
    saved.assert_held_by(filled.store)
