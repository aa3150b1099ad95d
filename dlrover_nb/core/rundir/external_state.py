"""Recovery state of an external job for the next driver: one small file in the run folder."""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.disk.files import replace_synced
from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.master.external.job.external_record import ExternalRecord  # noqa: TC001 - a record is decoded by its annotations

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

STATE_FILE = "foreign.json"


@dataclass(frozen=True, slots=True)
class SavedState:
    """All state that the next driver needs."""

    record: ExternalRecord
    read_ns: dict[str, int] = field(default_factory=dict)  # how far the lines of each node are read


class StateFile:
    """The file in a job's run folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / STATE_FILE
        self._last: SavedState | None = None
        self._can_save = True

    def read(self) -> SavedState:
        """Return the state of an earlier driver.

        Raises
        ------
        CheckpointError
            When there is no usable state.
        """
        try:
            return from_checked_json(self._path.read_bytes(), SavedState)
        except OSError as error:
            raise CheckpointError(
                f"the master of the job in {self._path.parent} left no state ({error}); submit the job again"
            ) from error
        except WireError as error:
            raise CheckpointError(
                f"{self._path} is damaged: {error}; restore it from a backup, or submit the job again: its "
                "programs go on from checkpoints of their own"
            ) from error

    def save(self, saved: SavedState) -> None:
        """Write the lasting state, if it changed; on a full disk only this master can continue the job."""
        if saved == self._last or not self._can_save:
            return
        self._last, new = saved, self._path.with_suffix(".new")
        try:
            new.write_bytes(to_checked_json(saved))
            replace_synced(new, self._path)
        except OSError as error:
            logger.warning("the job in %s will not outlive this master: %s", self._path.parent, error)
            self._can_save = False
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
