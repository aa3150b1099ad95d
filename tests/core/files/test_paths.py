"""The user's own folders, and who has none."""

from __future__ import annotations

import pwd
import tempfile

import pytest

from dlrover_nb.core.data.storage.cache import FOLDER_VAR, data_cache
from dlrover_nb.core.disk.paths import Xdg, state_folder, user_folder
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.history.database import default_url


@pytest.fixture
def homeless(monkeypatch):
    """Let the process be of a user without a name and a home, as OpenShift starts containers."""

    def unknown(uid):
        raise KeyError(uid)

    for name in ("HOME", "XDG_STATE_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.parametrize("kind", Xdg)
def test_a_user_without_a_home_is_told_what_to_set(homeless, monkeypatch, tmp_path, kind):
    with pytest.raises(BackendError, match=f"set HOME, or XDG_{kind.upper()}_HOME, to a folder"):
        user_folder(kind)
    monkeypatch.setenv(f"XDG_{kind.upper()}_HOME", str(tmp_path))
    assert user_folder(kind) == tmp_path / "dlrover-nb"


@pytest.mark.parametrize("asked", [state_folder, default_url])
def test_what_must_outlive_the_process_needs_a_home(homeless, asked):
    with pytest.raises(BackendError, match="HOME is not set"):
        asked()


def test_a_cache_needs_none(homeless, monkeypatch, tmp_path):
    monkeypatch.delenv(FOLDER_VAR, raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert data_cache.__wrapped__().folder.is_relative_to(tmp_path)  # not the one of tests before
