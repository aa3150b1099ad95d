"""Where the checkpoints of a run are kept."""

from __future__ import annotations

from pathlib import PurePath


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
