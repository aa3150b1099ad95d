"""Folders that cannot be written to, told to the person who can do something about it."""

from __future__ import annotations

import contextlib
import errno
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_FULL = {errno.ENOSPC, errno.EDQUOT}


@contextlib.contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn what the system says about a folder into one line with the way out.

    Raises
    ------
    BackendError
        When the block within could not write.
    """
    try:
        yield
    except OSError as error:
        way_out = (
            "make room on its disk"
            if error.errno in _FULL
            else "make it writable, or let XDG_STATE_HOME name a folder that is"
        )
        raise BackendError(f"cannot write to {folder}: {error.strerror or error}; {way_out}") from error
