"""The state folder of a user: private, and refused where it is another user's."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

import pytest

from dlrover_nb.core.disk.paths import state_folder
from dlrover_nb.core.errors import BackendError

NOBODY = 65534


@pytest.fixture
def home(monkeypatch):
    with tempfile.TemporaryDirectory() as folder:  # pytest's own is closed to other users
        Path(folder).chmod(0o755)
        monkeypatch.setenv("XDG_STATE_HOME", folder)
        yield Path(folder)


@contextlib.contextmanager
def as_another_user(folder):
    """Lose the rights on a folder, also where root runs the tests."""
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    else:
        folder.chmod(0)
    try:
        yield
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        else:
            folder.chmod(0o700)


def test_it_is_made_for_its_owner_alone(home):
    assert stat.S_IMODE(state_folder().stat().st_mode) == 0o700


def test_that_of_another_user_is_refused_with_the_way_out(home):
    with (
        as_another_user(state_folder()),
        pytest.raises(BackendError, match=r"Permission denied.*XDG_STATE_HOME"),
    ):
        state_folder()
