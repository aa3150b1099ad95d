"""The parameters that a user's module has at submit, as one part of a checkpoint in the run folder.

Its checksum is a part of its name, so that no second file has to say it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.runtime.checkpoints.ps_checkpoint import write

if TYPE_CHECKING:
    from pathlib import Path

    from dlrover_nb.core.runtime.store.partition import StorePart

_NAME = re.compile(r"first-([0-9a-f]{64})\.part")


@dataclass(frozen=True, slots=True)
class FirstParameters:
    """The file, and its checksum."""

    path: Path
    sha256: str


def write_first(folder: Path, part: StorePart) -> FirstParameters:
    """Write the parameters to a run folder.

    Raises
    ------
    CheckpointError
        When they cannot be written.
    """
    temporary = folder / "first.part"
    written = write(temporary, part)
    path = folder / f"first-{written.sha256}.part"
    temporary.rename(path)
    return FirstParameters(path, written.sha256)


def find_first(folder: Path) -> FirstParameters | None:
    """Return the parameters in a run folder; None: there are none."""
    for path in folder.glob("first-*.part"):
        if (match := _NAME.fullmatch(path.name)) is not None:
            return FirstParameters(path, match[1])
    return None
