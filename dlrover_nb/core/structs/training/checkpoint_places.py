"""Where the checkpoints of a run are kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True, slots=True)
class FirstParameters:
    """The file of the parameters that a user's own module has at submit.

    Parameters
    ----------
    place
        A path or URL.
    sha256, n_byte
        Of the whole file.
    at_s
        When it was written, in seconds since 1970.
    """

    place: str
    sha256: str
    n_byte: int
    at_s: float


def checkpoint_root(url: str, folder: str) -> str:
    """Return the path or URL under which each checkpoint of a run has a folder of its number.

    Parameters
    ----------
    url
        `JobSpec.checkpoint_url`; empty: in the run folder.
    folder
        The run folder, whose name distinguishes runs at one URL.
    """
    return f"{url.rstrip('/')}/{PurePath(folder).name}" if url else f"{folder}/checkpoints"


def part_url(root: str, number: int, index: int) -> str:
    """Return where PS `index` writes its part of a checkpoint."""
    return f"{root}/{number}/ps-{index}.part"
