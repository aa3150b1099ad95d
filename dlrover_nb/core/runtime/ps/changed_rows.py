"""Which rows of a PS have changed since its last file of a checkpoint: a decision, without any effect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.runtime.checkpoints.increments import Changes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Marks = NDArray[np.bool_]


class ChangedRows:
    """What the cuts of a store told, added up since the one whose file was written."""

    def __init__(self) -> None:
        self._since: int | None = None  # None: no file, or rows have moved since
        self._rows: Marks = np.empty(0, np.bool_)
        self._last = -1

    def on_cut(self, number: int, changed: Marks | None) -> None:
        """Add the rows that changed before a cut, and take that array; None: it is not known which."""
        self._last = number
        if changed is None:
            self._since = None
        elif self._since is not None:
            changed[: len(self._rows)] |= self._rows
            self._rows = changed

    def on_written(self, number: int) -> None:
        """Note that the file of a cut was written: what comes after it is added up from now on.

        Where there was another cut meanwhile, what changed between the two is mixed with what was before.
        """
        self._since = number if number == self._last else None
        self._rows = np.empty(0, np.bool_)

    def up_to(self, number: int) -> Changes | None:
        """Return what has changed from the last file to the last cut, if that is `number`."""
        if self._since is None or number != self._last:
            return None
        return Changes(self._since, self._rows)
