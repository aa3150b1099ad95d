"""The part of a checkpoint that a PS saves, and stores filled from parts: memory, copies of peers, files.

`core.runtime.checkpoints` handles bytes and places, this module handles parameters.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.errors import CheckpointError
from dlrover_nb.core.runtime.checkpoints import Image, Layout, Written, memory_image, read_url, write_url
from dlrover_nb.core.runtime.checkpoints.buffer import nothing
from dlrover_nb.core.runtime.checkpoints.image import parse
from dlrover_nb.core.runtime.checkpoints.increments import read_files
from dlrover_nb.core.runtime.store import StorePart
from dlrover_nb.core.structs.training.checkpoints import CopySource

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from dlrover_nb.core.runtime.store import ParameterStore
    from dlrover_nb.core.structs.training.checkpoints import PartSource

logger = logging.getLogger(__name__)

ReadPeer = Callable[[CopySource], "NDArray[np.uint8]"]


class _From(Enum):
    MEMORY = auto()
    PEER = auto()
    FILE = auto()


_ARRAYS = {"ids": ("<i8", 1), "table": ("<f4", 2), "dense": ("<f4", 2)}
_OFFSET = "dense_offset"


@dataclass(frozen=True, slots=True)
class Filled:
    """A filled store, and how many of its parts were read from memory and from copies of peers."""

    store: ParameterStore
    n_from_memory: int
    n_from_peers: int = 0


class _SpoiltError(CheckpointError):
    """The store has rows of a copy that is of no use: it was overwritten meanwhile, or is damaged."""


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
    arrays = {name: (array.dtype.str, array.ndim) for name, array in image.arrays.items()}
    if arrays != {name: (np.dtype(dtype).str, n) for name, (dtype, n) in _ARRAYS.items()}:
        raise CheckpointError(f"expected a checkpoint with the arrays {_ARRAYS}, got {arrays}")
    return StorePart(dense_offset=int(image.header.get(_OFFSET, 0)), **image.arrays)


def fill(
    new_store: Callable[[], ParameterStore],
    sources: Sequence[PartSource],
    owned: NDArray[np.bool_],
    read_peer: ReadPeer | None = None,
    *,
    between: Callable[[], None] = nothing,
) -> Filled:
    """Return a store filled with its rows from the parts of a checkpoint.

    A part that is not in the memory of this host is read from that of other nodes, else from its file. A
    store that took rows of memory that was overwritten meanwhile, or is damaged, is discarded, and filled
    again without.

    Parameters
    ----------
    new_store
        Makes an empty store.
    sources
        All parts of the checkpoint.
    owned
        For each bucket, whether this store is to hold it.
    read_peer
        Returns an image in the memory of another node; None: there is none.
    between
        Called every few MiB.

    Raises
    ------
    CheckpointError
        When a part cannot be read anywhere, or repeats a row of its own or of another part.
    """
    store, n_from = new_store(), Counter[_From]()
    for index, source in enumerate(sources):
        try:
            n_from[_load(store, source, owned, read_peer, between)] += 1
        except _SpoiltError as error:
            logger.warning("%s; it is read elsewhere", error)
            del store  # two of them may not fit
            elsewhere = replace(source, memory=None) if source.memory else replace(source, copies=())
            rest = [*sources[:index], elsewhere, *sources[index + 1 :]]
            return fill(new_store, rest, owned, read_peer, between=between)
    return Filled(store, n_from[_From.MEMORY], n_from[_From.PEER])


def _load(
    store: ParameterStore,
    source: PartSource,
    owned: NDArray[np.bool_],
    read_peer: ReadPeer | None,
    between: Callable[[], None],
) -> _From:
    """Load one part from the first place that has it; return from where."""
    n_other = store.n_row
    in_memory = [CopySource("", source.memory, is_peer=False)] if source.memory is not None else []
    for copy in (*in_memory, *source.copies):
        where = _From.PEER if copy.is_peer else _From.MEMORY
        try:
            if _load_here(store, copy, owned, between, n_other):
                return where
            if copy.endpoint and read_peer is not None:
                body = read_peer(copy)
                store.load(part_of(parse(body, copy.memory.name)), owned, between, n_other=n_other)
                return where
        except _SpoiltError:
            raise
        except CheckpointError as error:
            if store.n_row > n_other:
                raise _SpoiltError(str(error)) from error
            logger.warning("%s", error)
    if not source.url:
        raise CheckpointError("the checkpoint was in memory only, and that is gone; use an earlier one")
    for image in read_files(source.url, source.sha256, between=between):
        store.load(part_of(image), owned, between, n_other=n_other)
    return _From.FILE


def _load_here(
    store: ParameterStore,
    copy: CopySource,
    owned: NDArray[np.bool_],
    between: Callable[[], None],
    n_other: int,
) -> bool:
    """Load a part from the memory of this host, if it is here."""
    with contextlib.ExitStack() as stack:
        try:
            image = stack.enter_context(memory_image(copy.memory, between=between))
        except CheckpointError as error:
            logger.info("%s; it is read elsewhere", error)
            return False
        store.load(part_of(image), owned, between, n_other=n_other)
        try:
            stack.close()
        except CheckpointError as error:
            raise _SpoiltError(str(error)) from error
    return True


def write(path: Path | str, part: StorePart, *, between: Callable[[], None] = nothing) -> Written:
    """Write `part` to a path or URL atomically; see `write_url`."""
    return write_url(str(path), Layout(image_of(part)).chunks(), between=between)


def read(path: Path, sha256: str, *, between: Callable[[], None] = nothing) -> StorePart:
    """Return the part that `path` holds, its arrays mapped from the file and read-only; see `read_url`."""
    return part_of(read_url(str(path), sha256, between=between))
