from __future__ import annotations

import errno
from pathlib import Path

import pytest

from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.errors import BackendError


@pytest.mark.parametrize(
    ("number", "way_out"), [(errno.ENOSPC, "make room on its disk"), (errno.EACCES, "make it writable")]
)
def test_what_the_system_says_of_a_folder_is_told_with_the_way_out(number, way_out, error_words):
    with (
        error_words(BackendError),
        writing_to(Path("/jobs/x")),
    ):
        raise OSError(number, "because")


def test_what_is_no_matter_of_a_folder_goes_through():
    with pytest.raises(BackendError, match="as it was"), writing_to(Path("/jobs/x")):
        raise BackendError("as it was")
