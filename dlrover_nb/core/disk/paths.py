"""The user's own folders on this machine, by the XDG rules."""

from __future__ import annotations

import errno
import os
from enum import StrEnum
from pathlib import Path

import platformdirs

from dlrover_nb.core.disk.files import writing_to
from dlrover_nb.core.errors import BackendError

RUNS_VAR = "DLROVER_NB_RUNS"  # variable: folders of mounted volumes that hold run folders
HISTORY_VAR = "DLROVER_NB_HISTORY"  # variable: the URL of a team's history


class Xdg(StrEnum):
    """Kinds of folders of a user."""

    STATE = "state"
    DATA = "data"
    CACHE = "cache"
    CONFIG = "config"


def user_folder(kind: Xdg) -> Path:
    """Return one of the user's own folders, which may not be there yet.

    Raises
    ------
    BackendError
        When this user has no home directory, as a container's user without a name.
    """
    try:
        return Path(getattr(platformdirs, f"user_{kind}_dir")("dlrover-nb", appauthor=False))
    except RuntimeError as error:
        raise BackendError(
            f"HOME is not set, and user {os.getuid()} has no home directory; set HOME, or "
            f"XDG_{kind.upper()}_HOME, to a folder that it may write"
        ) from error


def state_folder() -> Path:
    """Return the user's private folder for what must outlive a process.

    Raises
    ------
    BackendError
        When it is not this user's, as where another user's HOME is kept, or the user has no home.
    """
    folder = user_folder(Xdg.STATE)
    with writing_to(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    return folder


def own_history() -> Path:
    """Return the file of the user's own history, where the environment names no other one."""
    return user_folder(Xdg.DATA) / "history.db"


def jobs_folder() -> Path:
    """Return where the run folders of this user's jobs lie."""
    return state_folder() / "jobs"


def run_roots() -> tuple[Path, ...]:
    """Return the folders that may hold run folders: the user's own, and those of mounted volumes.

    The variable `RUNS_VAR` names the latter, separated as in ``PATH``.
    """
    mounted = (Path(part) for part in os.environ.get(RUNS_VAR, "").split(os.pathsep) if part)
    return (jobs_folder(), *mounted)


def rows_folder() -> Path:
    """Return where rows lie that a user submitted from memory."""
    return state_folder() / "rows"
