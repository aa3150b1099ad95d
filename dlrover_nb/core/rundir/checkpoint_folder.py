"""Checkpoint folders of a job: one per checkpoint, complete only with its manifest.

PS write their parts themselves; the master makes the folder, checks free space first where the file system
reports it (a full disk is better detected early), and writes the manifest last and atomically. What it cannot
delete (a disk that is read-only or gone) is swept later.

A manifest combines model state, optimizer state (both in the parts), the data queue and the length of the
journal, all at the time when every worker was paused. Parts are copied at that time and written later, so the
journal continues meanwhile; replayed to that length of that segment it gives the job's state for these
parameters, for as long as the segment is kept.
"""

from __future__ import annotations

import logging
import math
import shutil
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.disk.files import make_folder
from dlrover_nb.core.errors import CheckpointError, WireError
from dlrover_nb.core.rundir.journal import segments
from dlrover_nb.core.runtime.checkpoints import as_checkpoint_error, place_of, write_url
from dlrover_nb.core.sharding.manifest import Manifest
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from dlrover_nb.core.structs.job.trained import Trained

logger = logging.getLogger(__name__)

MANIFEST = "manifest.json"
_GROWTH = 1.15  # a checkpoint may be that much larger than the one before


class CheckpointFolder:
    """All checkpoints of one job.

    Parameters
    ----------
    folder
        The job's run folder, with its journal.
    url
        Where checkpoints are kept, any URL that fsspec knows; empty: ``checkpoints`` in the run folder.
    trained
        Written into each manifest, so that another job can begin from a checkpoint without this run folder.
    """

    def __init__(self, folder: Path, url: str = "", *, trained: Trained | None = None) -> None:
        self._trained = trained
        self._folder = folder
        self._root = checkpoint_root(url, str(folder))
        self._journal: dict[int, tuple[int, int]] = {}  # its segment and bytes when a checkpoint began

    def note_journal(self, number: int) -> None:
        """Note how long the journal is, at the pause in which a checkpoint is copied."""
        newest = segments(self._folder)[-1:]
        self._journal[number] = (newest[0].number, newest[0].n_byte) if newest else (0, 0)

    def prepare(self, number: int, n_byte: int, spare: Sequence[int] = ()) -> tuple[int, ...]:
        """Make the folder of a checkpoint of about `n_byte`.

        Parameters
        ----------
        number, n_byte
            The checkpoint, and the size of the one before it.
        spare
            Checkpoints, oldest first, that may be deleted to make room. None is, where all would not be
            enough.

        Returns
        -------
        tuple of int
            Those that were deleted.

        Raises
        ------
        CheckpointError
            When it cannot be made or there is no room.
        """
        url = f"{self._root}/{number}"
        with as_checkpoint_error(f"cannot make the folder {url}", "choose another place for checkpoints"):
            fs, path, is_local = place_of(url)
            if not is_local:
                fs.makedirs(path, exist_ok=True)
                return ()
            make_folder(Path(path))
            needed = math.ceil(_GROWTH * n_byte)
            n_free = shutil.disk_usage(path).free
            dropped = self._chosen(spare, needed - n_free)
        if dropped is None:
            raise CheckpointError(
                f"expected {_mib(needed)} MiB free on the disk of {path}, got {_mib(n_free)} MiB; "
                "free space there or choose another place for checkpoints"
            )
        for old in dropped:
            logger.info("checkpoint %d makes room for checkpoint %d", old, number)
            self.drop(old)
        return dropped

    def _chosen(self, spare: Sequence[int], n_missing: int) -> tuple[int, ...] | None:
        """Return which of `spare` to delete for so many bytes; None: all of them are not enough."""
        chosen: list[int] = []
        for number in spare:
            if n_missing <= 0:
                break
            _, path, _ = place_of(f"{self._root}/{number}")
            n_missing -= sum(each.stat().st_size for each in Path(path).glob("*"))
            chosen.append(number)
        return None if n_missing > 0 else tuple(chosen)

    def write(self, manifest: Manifest) -> None:
        """Complete a checkpoint.

        Raises
        ------
        CheckpointError
            When the manifest cannot be written; the checkpoint then does not exist.
        """
        segment, n_byte = self._journal.pop(manifest.number, (0, 0))
        whole = replace(manifest, journal_segment=segment, n_journal_byte=n_byte, trained=self._trained)
        write_url(self._manifest(manifest.number), [np.frombuffer(to_checked_json(whole), np.uint8)])

    def read(self, number: int) -> Manifest:
        """Return the manifest of a checkpoint.

        Raises
        ------
        CheckpointError
            When there is none, or it is of an incompatible release.
        """
        return read_manifest(f"{self._root}/{number}")

    def latest(self) -> Manifest | None:
        """Return the manifest of the newest complete checkpoint; None when there is none.

        Raises
        ------
        CheckpointError
            When their place cannot be read.
        """
        return newest_manifest(self._root)

    def complete(self) -> tuple[Manifest, ...]:
        """Return the manifests of all complete checkpoints, oldest first; damaged ones are left out.

        Raises
        ------
        CheckpointError
            When their place cannot be read.
        """
        by_number = {manifest.number: manifest for manifest in complete_manifests(self._root)}
        return tuple(by_number[number] for number in sorted(by_number))

    def last_number(self) -> int:
        """Return the highest number of a checkpoint that was begun, complete or not; 0: of none."""
        return max(self._numbers(), default=0)

    def drop(self, number: int) -> None:
        """Delete a checkpoint, its manifest first, so that a partial one never looks complete."""
        url = f"{self._root}/{number}"
        self._journal.pop(number, None)
        try:
            with as_checkpoint_error(
                f"cannot delete checkpoint {url}", "delete it when that is possible again"
            ):
                _delete(url)
        except CheckpointError as error:  # it does no harm
            logger.warning("%s", error)

    def sweep(self, in_use: Collection[int], last: int) -> None:
        """Delete the checkpoints up to number `last` except `in_use`, and all that is left of others."""
        try:
            numbers = self._numbers()
        except CheckpointError as error:  # swept after the next checkpoint
            logger.warning("%s", error)
            return
        for number in sorted(n for n in numbers - set(in_use) if n <= last):
            logger.info("checkpoint %d in %s is swept: the job does not use it", number, self._root)
            self.drop(number)

    def _numbers(self) -> set[int]:
        """Return the numbers of all folders of checkpoints, complete or not."""
        with as_checkpoint_error(f"cannot list the checkpoints in {self._root}", "check the place"):
            fs, path, _ = place_of(self._root)
            fs.invalidate_cache()
            places = fs.ls(path, detail=False) if fs.exists(path) else []
        names = [PurePosixPath(place).name for place in places]
        return {int(name) for name in names if name.isascii() and name.isdigit()}

    def _manifest(self, number: int) -> str:
        return f"{self._root}/{number}/{MANIFEST}"


def read_manifest(url: str) -> Manifest:
    """Return the manifest of the checkpoint at `url`; raises as `CheckpointFolder.read`."""
    number = url.rpartition("/")[2]
    with as_checkpoint_error(f"checkpoint {number} is not complete", "use another one"):
        fs, path, _ = place_of(f"{url}/{MANIFEST}")
        data = fs.cat_file(path)
    try:
        return from_checked_json(data, Manifest)
    except WireError as error:
        raise CheckpointError(f"{url}/{MANIFEST} is damaged: {error}; use another checkpoint") from error


def complete_manifests(
    root: str, on_damaged: Callable[[CheckpointError], object] | None = None
) -> Iterator[Manifest]:
    """Yield those of the complete checkpoints under `root`, newest first, and pass over damaged ones.

    Raises
    ------
    CheckpointError
        When their place cannot be read.
    """
    with as_checkpoint_error(f"cannot list the checkpoints in {root}", "check the place"):
        fs, path, _ = place_of(root)
        fs.invalidate_cache()
        names = [PurePosixPath(file).parent.name for file in fs.glob(f"{path}/*/{MANIFEST}")]
    for number in sorted((int(name) for name in names if name.isdigit()), reverse=True):
        try:
            yield read_manifest(f"{root}/{number}")
        except CheckpointError as error:  # it is damaged, or a running job dropped it since
            logger.warning("checkpoint %d in %s is passed over: %s", number, root, error)
            if on_damaged is not None and isinstance(error.__cause__, WireError):
                on_damaged(error)


def newest_manifest(root: str) -> Manifest | None:
    """Return that of the newest complete checkpoint under `root`; None: there is none yet.

    Raises
    ------
    CheckpointError
        When their place cannot be read, or all that there are is damaged.
    """
    damaged = list[CheckpointError]()
    manifest = next(complete_manifests(root, damaged.append), None)
    if manifest is None and damaged:
        raise damaged[0]
    return manifest


def _mib(n_byte: int) -> str:
    """Return MiB, few of them with a digit after the point: small disks are full, too."""
    mib = n_byte / (1 << 20)
    return f"{mib:.0f}" if mib >= 100 else f"{mib:.1f}"


def _delete(url: str) -> None:
    fs, path, _ = place_of(url)
    if fs.exists(f"{path}/{MANIFEST}"):
        fs.rm_file(f"{path}/{MANIFEST}")
    if fs.exists(path):
        fs.rm(path, recursive=True)
