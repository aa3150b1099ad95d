from __future__ import annotations

import hashlib
import mmap

import fsspec
import numpy as np
import pytest

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import image_files
from dlrover_nb.core.runtime.checkpoints.image import Image, Layout
from dlrover_nb.core.runtime.checkpoints.image_files import read_url, write_url


@pytest.fixture
def bucket():
    yield "memory://flash-tests/job"
    fsspec.filesystem("memory").rm("/flash-tests", recursive=True)


def chunks(seed=0):
    return Layout(Image({"seed": seed}, {"a": np.random.default_rng(seed).random(1000)})).chunks()


def names(url):
    fs, path = fsspec.core.url_to_fs(url)
    return [found.rpartition("/")[2] for found in fs.ls(path, detail=False)]


@pytest.fixture(params=["path", "file://", "memory://"])
def place(request, tmp_path):
    if request.param == "memory://":
        return request.getfixturevalue("bucket")
    return f"{'file://' * (request.param == 'file://')}{tmp_path}/job"


def test_what_is_written_is_read(place):
    written = write_url(f"{place}/1/part", chunks(1))
    image = read_url(f"{place}/1/part", written.sha256)
    assert image.header == {"seed": 1}
    np.testing.assert_array_equal(image.arrays["a"], np.random.default_rng(1).random(1000))
    assert names(f"{place}/1") == ["part"]


def test_a_writer_that_fails_leaves_what_was_there(place):
    good = write_url(f"{place}/part", chunks(1))

    def break_down():
        raise CheckpointError("enough")

    with pytest.raises(CheckpointError, match="enough"):
        write_url(f"{place}/part", chunks(2), between=break_down)
    assert read_url(f"{place}/part", good.sha256).header == {"seed": 1}
    assert names(place) == ["part"]


@pytest.mark.parametrize("at", [0, 9, 40, 3000, -1])
def test_one_flipped_byte_is_noticed(place, at):
    written = write_url(f"{place}/part", chunks())
    fs, path = fsspec.core.url_to_fs(f"{place}/part")
    data = bytearray(fs.cat_file(path))
    data[at] ^= 1
    fs.pipe_file(path, bytes(data))
    with pytest.raises(CheckpointError, match="is damaged: expected SHA-256"):
        read_url(f"{place}/part", written.sha256)


@pytest.mark.parametrize("keep", [0, 5, 11, 50, 2000])
def test_a_truncated_file_is_refused_even_under_its_own_checksum(place, keep):
    write_url(f"{place}/part", chunks())
    fs, path = fsspec.core.url_to_fs(f"{place}/part")
    data = fs.cat_file(path)[:keep]
    fs.pipe_file(path, data)
    with pytest.raises(CheckpointError):
        read_url(f"{place}/part", hashlib.sha256(data).hexdigest())


def test_a_missing_file_is_one_clear_line(place):
    write_url(f"{place}/part", chunks())
    with pytest.raises(CheckpointError, match=r"cannot read the checkpoint .*none") as caught:
        read_url(f"{place}/none", "0" * 64)
    assert "\n" not in str(caught.value)


def test_an_unknown_kind_of_url_is_one_clear_line():
    with pytest.raises(CheckpointError, match="cannot write the checkpoint nowhere://a"):
        write_url("nowhere://a", chunks())


class Hesitant:
    """A file that takes some bytes of each piece only, as on a nearly full disk."""

    def __init__(self, file):
        self._file = file

    def __getattr__(self, name):
        return getattr(self._file, name)

    def write(self, data):
        return self._file.write(data[:1000])


@pytest.mark.parametrize("is_hesitant", [False, True])
@pytest.mark.parametrize("first", [0, 8])  # where in a page the bytes begin: those of a page are not copied
@pytest.mark.parametrize(
    "lengths", [(4096,), (8192, 1), (1, 4096, 4095, 9000, 3), (), (0, 5), (12293, 4096), (8192, 4096)]
)
def test_pieces_around_the_page_cache_are_all_of_the_bytes(
    tmp_path, monkeypatch, lengths, first, is_hesitant
):
    monkeypatch.setattr(image_files, "_WRITE_BYTES", 4096)
    if is_hesitant:
        write_all = image_files._write_all
        monkeypatch.setattr(image_files, "_write_all", lambda file, data: write_all(Hesitant(file), data))
        monkeypatch.setattr(image_files.io, "FileIO", (image_files.io.FileIO, Hesitant))
    data = np.frombuffer(mmap.mmap(-1, 1 << 15), np.uint8)[first : first + sum(lengths)]
    data[:] = np.random.default_rng(1).integers(0, 256, len(data), np.uint8)
    written = write_url(f"{tmp_path}/part", np.split(data, np.cumsum(lengths)[:-1]) if lengths else [])
    assert (tmp_path / "part").read_bytes() == data.tobytes()
    assert written == image_files.Written(hashlib.sha256(data).hexdigest(), len(data))
