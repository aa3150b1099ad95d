"""A checkpoint as one record, for a client that cannot read the folder where a job's nodes keep it.

It is sent in one piece through all proxies between client and master, so it is only for models of moderate
size. Larger ones are read from a place that both sides can read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.codec import to_checked_json
from dlrover_nb.core.errors import CheckpointError, NotFoundError
from dlrover_nb.core.rundir.checkpoint_folder import MANIFEST, CheckpointFolder
from dlrover_nb.core.runtime.checkpoints import as_checkpoint_error, place_of
from dlrover_nb.core.sharding.manifest import Manifest  # noqa: TC001 - decoded by its annotations
from dlrover_nb.core.structs.training.checkpoint_places import checkpoint_root, part_url

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 128 << 20


@dataclass(frozen=True, slots=True)
class CheckpointBundle:
    """A checkpoint: its manifest, and its parts in the manifest's order."""

    manifest: Manifest
    parts: tuple[bytes, ...]


def pack_checkpoint(folder: Path, *, most_bytes: int = MOST_BYTES) -> CheckpointBundle:
    """Return the newest checkpoint of a run folder.

    Raises
    ------
    NotFoundError
        When there is none.
    CheckpointError
        When it is too large to be sent, or cannot be read.
    """
    manifest = CheckpointFolder(folder).latest()
    if manifest is None:
        raise NotFoundError(f"there is no checkpoint in {folder} yet; wait until the job has saved one")
    if manifest.n_byte > most_bytes:
        raise CheckpointError(
            f"a model that is sent must be <= {most_bytes >> 20} MiB, got {-(-manifest.n_byte >> 20)} MiB; "
            "let the job keep its checkpoints at a checkpoint_url, or load it where its volume is mounted"
        )
    return CheckpointBundle(manifest, tuple(_read(url) for url, _ in manifest.files))


def lay_out(parcel: CheckpointBundle, folder: Path) -> None:
    """Write a checkpoint into a run folder, as if it had been saved there; parts are verified when read."""
    root, number = checkpoint_root("", str(folder)), parcel.manifest.number
    files = [
        (part_url(root, number, index), sha256) for index, (_, sha256) in enumerate(parcel.manifest.files)
    ]
    place = folder / "checkpoints" / str(number)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    for (path, _), part in zip(files, parcel.parts, strict=True):
        (place / path.rpartition("/")[2]).write_bytes(part)
    (place / MANIFEST).write_bytes(to_checked_json(replace(parcel.manifest, files=tuple(files))))


def _read(url: str) -> bytes:
    with as_checkpoint_error(f"cannot read the checkpoint {url}", "try again"):
        fs, path, _ = place_of(url)
        data: bytes = fs.cat_file(path)
    return data
