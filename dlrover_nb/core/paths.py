"""The user's own folders on this machine, below the XDG state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

import platformdirs

from dlrover_nb.core.files import writing_to

if TYPE_CHECKING:
    from pathlib import Path

HISTORY_VAR = "DLROVER_NB_HISTORY"  # variable: the URL of a team's history


def state_folder() -> Path:
    """Return the user's private folder for what must outlive a process."""
    folder = platformdirs.user_state_path("dlrover-nb", appauthor=False)
    with writing_to(folder):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def jobs_folder() -> Path:
    """Return where the run folders of this user's jobs lie."""
    return state_folder() / "jobs"


def rows_folder() -> Path:
    """Return where rows lie that a user submitted from memory."""
    return state_folder() / "rows"
