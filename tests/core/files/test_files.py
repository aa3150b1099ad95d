"""Files are written whole or not at all, and never lost by accident."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlrover_nb.core.disk.files import write
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    assert write(path, "one\n") == path
    with pytest.raises(InvalidValueError, match="exists already; use --force"):
        write(path, "two\n")
    assert path.read_text() == "one\n"
    write(path, "two\n", force=True)
    assert path.read_text() == "two\n"
    assert list(tmp_path.iterdir()) == [path]


def test_the_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("x")
    written = write(tmp_path / "job.yaml", "x")
    assert written.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_missing_folder_and_a_folder_are_refused(tmp_path: Path, error_words) -> None:
    with error_words(NotFoundError):
        write(tmp_path / "nowhere" / "job.yaml", "x")
    with error_words(InvalidValueError):
        write(tmp_path, "x", force=True)


def test_a_device_is_never_replaced_by_a_file(error_words) -> None:
    with error_words(InvalidValueError):
        write("/dev/null", "x", force=True)
    assert Path("/dev/null").is_char_device()


def test_a_name_that_no_file_can_have_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidValueError, match="File name too long; name another file"):
        write(tmp_path / ("a" * 300), "x")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path / "job.yaml", "old")
    with pytest.raises((DlroverError, UnicodeEncodeError)):
        write(path, "new \ud800", force=True)  # no text file can hold half a character
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
