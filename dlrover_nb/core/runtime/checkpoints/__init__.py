"""Flash checkpoints: copies in memory and files of them, both made while training goes on."""

from dlrover_nb.core.runtime.checkpoints.background import CopyEnded, Persisted, PersistFailed
from dlrover_nb.core.runtime.checkpoints.buffer import memory_image, read_piece
from dlrover_nb.core.runtime.checkpoints.image import Image, Layout
from dlrover_nb.core.runtime.checkpoints.image_files import (
    Written,
    as_checkpoint_error,
    place_of,
    read_url,
    write_url,
)
from dlrover_nb.core.runtime.checkpoints.keeper import FlashCheckpoint
from dlrover_nb.core.runtime.checkpoints.memory_names import (
    MemoryClaim,
    free_memory,
    free_run,
    run_name,
    sweep_memory,
)

__all__ = [
    "CopyEnded",
    "FlashCheckpoint",
    "Image",
    "Layout",
    "MemoryClaim",
    "PersistFailed",
    "Persisted",
    "Written",
    "as_checkpoint_error",
    "free_memory",
    "free_run",
    "memory_image",
    "place_of",
    "read_piece",
    "read_url",
    "run_name",
    "sweep_memory",
    "write_url",
]
