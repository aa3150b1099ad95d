"""Checkpoint folders of a job: one per checkpoint, complete only with its manifest.

PS write their parts themselves; the master makes the folder, checks free space first where the file system
reports it (a full disk is better detected before a pause than in it), and writes the manifest last and
atomically.

A manifest combines model state, optimizer state (both in the parts), the data queue and the length of the
journal, all at the time when every worker was paused. Parts are copied at that time and written later, so the
journal continues meanwhile; replayed to that length it gives the job's state for these parameters.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath

import numpy as np

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.rundir.journal import JOURNAL
from dlrover_nb.core.runtime.flash import as_checkpoint_error, checkpoint_root, place_of, write_url
from dlrover_nb.core.runtime.orders import Manifest

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_GROWTH = 2  # a checkpoint may be that much larger than the one before


class CheckpointFolder:
    """All checkpoints of one job.

    Parameters
    ----------
    folder
        The job's run folder, with its journal.
    url
        Where checkpoints are kept, any URL that fsspec knows; empty: ``checkpoints`` in the run folder.
    """

    def __init__(self, folder: Path, url: str = "") -> None:
        self._journal = folder / JOURNAL
        self._root = checkpoint_root(url, str(folder))
        self._n_journal: dict[int, int] = {}  # bytes of the journal when a checkpoint began

    def prepare(self, number: int, n_byte: int) -> None:
        """Make the folder of a checkpoint of about `n_byte`.

        Raises
        ------
        CheckpointError
            When it cannot be made or there is no room.
        """
        self._n_journal[number] = self._journal.stat().st_size if self._journal.exists() else 0
        url = f"{self._root}/{number}"
        with as_checkpoint_error(f"cannot make the folder {url}", "choose another place for checkpoints"):
            fs, path, is_local = place_of(url)
            if not is_local:
                fs.makedirs(path, exist_ok=True)
                return
            Path(path).mkdir(mode=0o700, parents=True, exist_ok=True)
            n_free = shutil.disk_usage(path).free
        if n_free < _GROWTH * n_byte:
            raise CheckpointError(
                f"expected {_GROWTH * n_byte >> 20} MiB free on the disk of {path}, got {n_free >> 20} MiB; "
                "free space there or choose another place for checkpoints"
            )

    def write(self, manifest: Manifest) -> None:
        """Complete a checkpoint.

        Raises
        ------
        CheckpointError
            When the manifest cannot be written; the checkpoint then does not exist.
        """
        whole = replace(manifest, n_journal_byte=self._n_journal.pop(manifest.number, 0))
        write_url(self._manifest(manifest.number), [np.frombuffer(to_json(whole), np.uint8)])

    def read(self, number: int) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises
        ------
        CheckpointError
            When there is none, or it is of an incompatible release.
        """
        url = self._manifest(number)
        with as_checkpoint_error(f"checkpoint {number} is not complete", "use another one"):
            fs, path, _ = place_of(url)
            data = fs.cat_file(path)
        try:
            return from_json(data, Manifest)
        except WireError as error:
            raise CheckpointError(f"{url} is damaged: {error}; use another checkpoint") from error

    def latest(self) -> Manifest | None:
        """Return the manifest of the newest complete checkpoint; None when there is none.

        Raises
        ------
        CheckpointError
            When their place cannot be read.
        """
        with as_checkpoint_error(f"cannot list the checkpoints in {self._root}", "check the place"):
            fs, path, _ = place_of(self._root)
            fs.invalidate_cache()
            names = [PurePosixPath(found).parent.name for found in fs.glob(f"{path}/*/{MANIFEST}")]
        for number in sorted((int(name) for name in names if name.isdigit()), reverse=True):
            try:
                return self.read(number)
            except CheckpointError:  # a running job dropped it since
                continue
        return None

    def drop(self, number: int) -> None:
        """Delete a checkpoint, its manifest first, so that a partial one never looks complete."""
        url = f"{self._root}/{number}"
        self._n_journal.pop(number, None)
        try:
            with as_checkpoint_error(
                f"cannot delete checkpoint {url}", "delete it when that is possible again"
            ):
                _delete(url)
        except CheckpointError as error:  # it does no harm
            logger.warning("%s", error)

    def _manifest(self, number: int) -> str:
        return f"{self._root}/{number}/{MANIFEST}"


def _delete(url: str) -> None:
    fs, path, _ = place_of(url)
    if fs.exists(f"{path}/{MANIFEST}"):
        fs.rm_file(f"{path}/{MANIFEST}")
    if fs.exists(path):
        fs.rm(path, recursive=True)
