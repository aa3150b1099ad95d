"""Checkpoint folders of a job: one per checkpoint, complete only with its manifest.

PS write their parts themselves; the master makes the folder, looks for room beforehand (a full disk is better
found before a pause than in it), and writes the manifest last and atomically.
"""

from __future__ import annotations

import logging
import os
import shutil
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.orders import Manifest

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_GROWTH = 2  # a checkpoint may be that much larger than the one before


class CheckpointFolder:
    """All checkpoints of one job.

    Parameters
    ----------
    folder
        The job's run folder; checkpoint N lies in ``checkpoints/N`` in it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "checkpoints"

    def prepare(self, number: int, n_byte: int) -> None:
        """Make the folder of a checkpoint of about `n_byte`.

        Raises
        ------
        CheckpointError
            When it cannot be made or there is no room.
        """
        path = self._folder / str(number)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            n_free = shutil.disk_usage(path).free
        except OSError as error:
            raise CheckpointError(
                f"cannot make the folder {path}: {error.strerror}; choose a run folder that can be written"
            ) from error
        if n_free < _GROWTH * n_byte:
            raise CheckpointError(
                f"expected {_GROWTH * n_byte >> 20} MiB free on the disk of {path}, got {n_free >> 20} MiB; "
                "free space there or choose another run folder"
            )

    def write(self, manifest: Manifest) -> None:
        """Complete a checkpoint.

        Raises
        ------
        CheckpointError
            When the manifest cannot be written; the checkpoint then does not exist.
        """
        path = self._folder / str(manifest.number) / MANIFEST
        temporary = path.with_suffix(".tmp")
        try:
            with temporary.open("wb") as file:
                file.write(to_json(manifest))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise CheckpointError(
                f"cannot write {path}: {error.strerror}; free space on that disk or choose another run folder"
            ) from error

    def read(self, number: int) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises
        ------
        CheckpointError
            When there is none.
        """
        path = self._folder / str(number) / MANIFEST
        try:
            return from_json(path.read_bytes(), Manifest)
        except OSError as error:
            raise CheckpointError(f"checkpoint {number} is not complete: {error}; use another one") from error

    def drop(self, number: int) -> None:
        """Delete a checkpoint, its manifest first, so that no half of one looks whole."""
        path = self._folder / str(number)
        try:
            (path / MANIFEST).unlink(missing_ok=True)
            shutil.rmtree(path)
        except FileNotFoundError:
            return
        except OSError as error:
            logger.warning("checkpoint %s could not be deleted: %s", path, error)
