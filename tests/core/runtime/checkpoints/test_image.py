from __future__ import annotations

import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints.image import Image, Layout, parse

DTYPES = ("<f4", "<f8", "<i4", "<i8", "|u1", "|b1")


def arrays():
    kinds = st.sampled_from(DTYPES)
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=20)
    return st.dictionaries(
        st.text(max_size=8), kinds.flatmap(lambda kind: hnp.arrays(kind, shapes)), max_size=4
    )


def bytes_of(image):
    return np.concatenate([*Layout(image).chunks(), np.empty(0, np.uint8)])


@given(arrays(), st.dictionaries(st.text(max_size=8), st.integers(-(2**53), 2**53) | st.text(), max_size=4))
def test_what_is_laid_out_is_parsed_again(found, header):
    data = bytes_of(Image(header, found))
    assert len(data) == Layout(Image(header, found)).n_byte
    again = parse(data, "it")
    assert again.header == header
    assert list(again.arrays) == list(found)
    for name, array in found.items():
        assert again.arrays[name].dtype == array.dtype
        assert again.arrays[name].shape == array.shape
        assert again.arrays[name].tobytes() == array.tobytes()
        assert not again.arrays[name].flags.writeable


@pytest.mark.more
@given(arrays(), st.data())
def test_a_head_with_any_other_byte_is_refused_or_stays_within_bounds(found, data):
    image = bytes_of(Image({"a": 1}, found))
    at = data.draw(st.integers(0, min(len(image), 400) - 1))
    image[at] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CheckpointError):
        again = parse(image, "it")
        assert sum(array.nbytes for array in again.arrays.values()) <= len(image)


@given(st.data())
def test_a_part_of_an_image_is_refused(data):
    image = bytes_of(Image({}, {"a": np.arange(100)}))
    with pytest.raises(CheckpointError):
        parse(image[: data.draw(st.integers(0, len(image) - 1))], "it")


def test_a_longer_image_is_refused():
    image = bytes_of(Image({}, {"a": np.arange(100)}))
    with pytest.raises(CheckpointError, match="its head announces"):
        parse(np.append(image, np.zeros(64, np.uint8)), "it")


def test_another_format_names_itself_and_what_was_expected(error_words):
    image = bytes_of(Image({}, {}))
    image[7] = ord("9")
    with error_words(CheckpointError):
        parse(image, "it")


def test_a_foreign_file_is_no_checkpoint():
    with pytest.raises(CheckpointError, match="no checkpoint of dlrover-nb"):
        parse(np.frombuffer(b"PK\x03\x04" * 100, np.uint8), "it")


def test_arrays_that_hold_objects_cannot_be_asked_for():
    image = bytes_of(Image({}, {"a": np.zeros(8)}))
    text = image.tobytes().replace(b"<f8", b"|O8")
    with pytest.raises(CheckpointError, match=r"cannot be \|O8"):
        parse(np.frombuffer(text, np.uint8), "it")


def test_arrays_that_hold_objects_are_not_laid_out(error_words):
    with error_words(CheckpointError):
        Layout(Image({}, {"a": np.array([None])}))
