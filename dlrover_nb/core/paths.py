"""The user's own folders on this machine, below the XDG state folder."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import platformdirs

from dlrover_nb.core.files import writing_to

RUNS_VAR = "DLROVER_NB_RUNS"  # variable: folders of mounted volumes that hold run folders
HISTORY_VAR = "DLROVER_NB_HISTORY"  # variable: the URL of a team's history


def state_folder() -> Path:
    """Return the user's private folder for what must outlive a process.

    Raises
    ------
    BackendError
        When it is not this user's, as where another user's HOME is kept.
    """
    folder = platformdirs.user_state_path("dlrover-nb", appauthor=False)
    with writing_to(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    return folder


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
