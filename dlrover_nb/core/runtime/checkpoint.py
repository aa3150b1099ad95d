"""The part of a checkpoint that a PS saves, and stores filled from parts: memory first, then files.

`core.runtime.flash` handles bytes and places, this module handles parameters.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.flash import Image, Layout, Written, memory_image, read_url, write_url
from dlrover_nb.core.runtime.flash.buffer import nothing
from dlrover_nb.core.runtime.store import StorePart

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.checkpoints import PartSource

logger = logging.getLogger(__name__)

_ARRAYS = {"ids": ("<i8", 1), "table": ("<f4", 2), "dense": ("<f4", 2)}
_OFFSET = "dense_offset"


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled store, and how many of its sources were read from memory."""

    store: ParameterStore
    n_from_memory: int


def image_of(part: StorePart) -> Image:
    """Return a part as an image; nothing is copied."""
    return Image({_OFFSET: part.dense_offset}, {name: getattr(part, name) for name in _ARRAYS})


def part_of(image: Image) -> StorePart:
    """Return the part that an image holds; nothing is copied.

    Raises
    ------
    CheckpointError
        When it holds something else.
    """
    found = {name: (array.dtype.str, array.ndim) for name, array in image.arrays.items()}
    if found != {name: (np.dtype(dtype).str, n) for name, (dtype, n) in _ARRAYS.items()}:
        raise CheckpointError(f"expected a checkpoint with the arrays {_ARRAYS}, got {found}")
    return StorePart(dense_offset=int(image.header.get(_OFFSET, 0)), **image.arrays)


def fill(
    new_store: Callable[[], ParameterStore],
    sources: Sequence[PartSource],
    owned: NDArray[np.bool_],
    *,
    between: Callable[[], None] = nothing,
) -> Filled:
    """Return a store filled with its rows from the parts of a checkpoint.

    A part whose memory cannot be read is read from its file. A store that was filled from memory that
    was overwritten meanwhile is discarded, and filled again.

    Parameters
    ----------
    new_store
        Makes an empty store.
    sources
        All parts of the checkpoint.
    owned
        For each bucket, whether this store is to hold it.
    between
        Called every few MiB.

    Raises
    ------
    CheckpointError
        When a part cannot be read from memory or file.
    """
    store = new_store()
    for index, source in enumerate(sources):
        if source.memory is None:
            store.load(_read_file(source, between), owned, between)
            continue
        try:
            with memory_image(source.memory, between=between) as image:
                store.load(part_of(image), owned, between)
        except CheckpointError as error:
            logger.warning("%s; its file is used", error)
            del store  # two of them may not fit
            rest = [*sources[:index], replace(source, memory=None), *sources[index + 1 :]]
            return fill(new_store, rest, owned, between=between)
    return Filled(store, sum(source.memory is not None for source in sources))


def _read_file(source: PartSource, between: Callable[[], None]) -> StorePart:
    if not source.url:
        raise CheckpointError("the checkpoint was in memory only, and that is gone; use an earlier one")
    return part_of(read_url(source.url, source.sha256, between=between))


def write(path: Path, part: StorePart, *, between: Callable[[], None] = nothing) -> Written:
    """Write `part` to `path` atomically; see `flash.write_url`."""
    return write_url(str(path), Layout(image_of(part)).chunks(), between=between)


def read(path: Path, sha256: str, *, between: Callable[[], None] = nothing) -> StorePart:
    """Return the part that `path` holds, its arrays mapped from the file and read-only; see `read_url`."""
    return part_of(read_url(str(path), sha256, between=between))
