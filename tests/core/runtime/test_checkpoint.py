from __future__ import annotations

import errno
import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime import checkpoint
from dlrover_nb.core.runtime.flash import files
from dlrover_nb.core.runtime.store import StorePart


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
    written = checkpoint.write(tmp_path / "deep" / "a", part(n, n_dense))
    assert written.n_byte == (tmp_path / "deep" / "a").stat().st_size
    assert_equal(checkpoint.read(tmp_path / "deep" / "a", written.sha256), part(n, n_dense))
    assert names(tmp_path / "deep") == ["a"]


def test_the_caller_is_called_between_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_WRITE_BYTES", 256)
    calls = []
    written = checkpoint.write(tmp_path / "a", part(), between=lambda: calls.append(1))
    assert len(calls) > written.n_byte // 256
    assert_equal(checkpoint.read(tmp_path / "a", written.sha256), part())


@pytest.mark.parametrize("at", [0, 9, 40, 3000, -1])
def test_one_flipped_byte_is_noticed(tmp_path, at):
    path = tmp_path / "a"
    written = checkpoint.write(path, part())
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match="damaged"):
        checkpoint.read(path, written.sha256)


@pytest.mark.parametrize("keep", [0, 5, 11, 50, 2000])
def test_a_truncated_file_is_refused_even_under_its_own_checksum(tmp_path, keep):
    path = tmp_path / "a"
    checkpoint.write(path, part())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CheckpointError):
        checkpoint.read(path, hashlib.sha256(path.read_bytes()).hexdigest())


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(CheckpointError, match="No such file"):
        checkpoint.read(tmp_path / "none", "0" * 64)


def test_a_full_disk_leaves_the_last_good_file(tmp_path, monkeypatch):
    path = tmp_path / "a"
    good = checkpoint.write(path, part(seed=1))

    def full(_handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match=r"No space left.*untouched"):
        checkpoint.write(path, part(seed=2))
    assert names(tmp_path) == ["a"]
    assert_equal(checkpoint.read(path, good.sha256), part(seed=1))


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_device_is_a_clear_error(tmp_path):
    name = f".a.{os.getpid()}.tmp"
    (tmp_path / name).symlink_to("/dev/full")
    with pytest.raises(CheckpointError, match="No space left"):
        checkpoint.write(tmp_path / "a", part())
    assert names(tmp_path) == []
