"""The parameters that a user's module has at submit, as one part of a checkpoint.

A note in the run folder says where the file is: beside it, or at a URL where the nodes of a job are pods,
which do not see the folder.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.codec import from_checked_json, to_checked_json
from dlrover_nb.core.disk import files
from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import write
from dlrover_nb.core.structs.training.checkpoint_places import FirstParameters

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.runtime.store.partition import StorePart

_NOTE, _FILE = "first.json", "first.part"


def write_first(root: str, part: StorePart) -> FirstParameters:
    """Write the parameters below a path or URL.

    Raises
    ------
    CheckpointError
        When they cannot be written.
    """
    place = f"{root}/{_FILE}"
    written = write(place, part)
    return FirstParameters(place, written.sha256, written.n_byte, SystemClock().now_s())


def note_first(folder: Path, first: FirstParameters) -> None:
    """Say in a run folder where the parameters are; of a file in it by its name, as folders may move."""
    place = first.place.removeprefix(f"{folder}/")
    files.write(folder / _NOTE, to_checked_json(replace(first, place=place)), force=True)


def find_first(folder: Path) -> FirstParameters | None:
    """Return where the parameters of a run are; None: it has none.

    Raises
    ------
    WireError
        When the note is damaged.
    """
    try:
        first = from_checked_json((folder / _NOTE).read_bytes(), FirstParameters)
    except FileNotFoundError:
        return None
    return first if "://" in first.place else replace(first, place=str(folder / first.place))
