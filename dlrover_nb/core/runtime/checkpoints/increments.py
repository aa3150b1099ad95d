"""Files of a PS that hold only the rows that changed since the file before.

Each names the file that it adds to, its base, with the checksum of that, and lies beside it: in the folder of
each checkpoint are all files that it needs, as hard links on a local disk and as copies that an object store
makes on its side. So any checkpoint may be deleted or moved at any time, with no list of what needs it, and
a base that is gone means that the next file is whole. To read one, its base is read first, and replaced by
what it holds.

A file is whole again after `MOST_FILES`, and when increments would exceed `MOST_SHARE` of the whole.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.core.disk.files import make_folder
from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints.image import Image, Layout, parse
from dlrover_nb.core.runtime.checkpoints.image_files import (
    Written,
    as_checkpoint_error,
    place_of,
    read_url,
    write_url,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger(__name__)

LEAST_BYTES = 128 << 20  # of a whole file: smaller ones are written whole, and sent as one (`rundir.bundle`)
MOST_FILES = 8
MOST_SHARE = 0.5
ROW_ARRAYS = ("ids", "table")
_BASE, _BASE_SHA = "base", "base_sha256"


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed since a checkpoint: for each row, whether it is among it."""

    since: int
    rows: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class _File:
    number: int
    url: str
    sha256: str
    n_byte: int

    @property
    def name(self) -> str:
        """Name beside a file that adds to it."""
        return f"{self.url.rpartition('/')[2]}.{self.number}"


class Chain:
    """The files of one PS on which the next may build; for the one thread that writes them."""

    def __init__(self) -> None:
        self._files: list[_File] = []

    @property
    def is_whole(self) -> bool:
        """Whether the last file needs no other."""
        return len(self._files) == 1

    def write(
        self,
        number: int,
        url: str,
        image: NDArray[np.uint8],
        changes: Changes | None,
        between: Callable[[], None],
    ) -> Written:
        """Write an image, or what has changed in it; return the file's SHA-256 and the bytes of all it needs.

        Raises
        ------
        CheckpointError
            When it cannot be written.
        """
        layout = None if changes is None else self._increment(image, changes)
        if layout is None or not self._place_beside(url):
            written = write_url(url, (image,), between=between)
            self._files = []
        else:
            written = write_url(url, layout.chunks(), between=between)
        self._files.append(_File(number, url, written.sha256, written.n_byte))
        return Written(written.sha256, sum(file.n_byte for file in self._files))

    def _increment(self, image: NDArray[np.uint8], changes: Changes) -> Layout | None:
        """Return what is to be added to the last file; None where a whole one is better."""
        files = self._files
        if not files or files[-1].number != changes.since or len(image) < LEAST_BYTES:
            return None
        whole = parse(image, "a copy in memory")
        header = {**whole.header, _BASE: files[-1].name, _BASE_SHA: files[-1].sha256}
        rows = dict.fromkeys(ROW_ARRAYS, changes.rows)
        layout = Layout(Image(header, whole.arrays), rows)
        n_added = layout.n_byte + sum(file.n_byte for file in files[1:])
        is_small = n_added <= MOST_SHARE * len(image) and len(files) < MOST_FILES
        return layout if is_small else None

    def _place_beside(self, url: str) -> bool:
        """Put the files of the chain beside `url`; whether they are there."""
        *older, last = self._files
        places = [(last.url, last.name), *((_beside(last.url, file.name), file.name) for file in older)]
        try:
            for place, name in places:
                _place(place, _beside(url, name))
        except CheckpointError as error:
            logger.info("%s", error)
            return False
        return True


def read_files(url: str, sha256: str, *, between: Callable[[], None]) -> Iterator[Image]:
    """Yield a file after all that it adds to, the whole one first; raises as `read_url`."""
    image = read_url(url, sha256, between=between)
    base = str(image.header.get(_BASE, ""))
    if base:
        if "/" in base or base.startswith("."):
            raise CheckpointError(f"{url} is damaged: {base!r} is no file beside it")
        yield from read_files(_beside(url, base), str(image.header.get(_BASE_SHA, "")), between=between)
    yield image


def _beside(url: str, name: str) -> str:
    return f"{url.rpartition('/')[0]}/{name}"


def _place(url: str, to: str) -> None:
    """Make a file known by another name, without writing its bytes again."""
    with as_checkpoint_error(f"{url} cannot be placed beside {to}", "the next file is whole"):
        fs, path, is_local = place_of(url)
        _, target, _ = place_of(to)
        if is_local:
            make_folder(Path(target).parent)
            os.link(path, target)
        else:
            fs.makedirs(target.rpartition("/")[0], exist_ok=True)
            fs.cp_file(path, target)
