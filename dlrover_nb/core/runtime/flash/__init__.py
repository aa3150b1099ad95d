"""Flash checkpoints: training waits for one copy in memory, files are written in the background."""

from dlrover_nb.core.runtime.flash.buffer import memory_image
from dlrover_nb.core.runtime.flash.files import Written, read_url, write_url
from dlrover_nb.core.runtime.flash.image import Image, Layout
from dlrover_nb.core.runtime.flash.keeper import FlashCheckpoint, Persisted, PersistFailed
from dlrover_nb.core.runtime.flash.names import MemoryClaim, free_memory, sweep_memory

__all__ = [
    "FlashCheckpoint",
    "Image",
    "Layout",
    "MemoryClaim",
    "PersistFailed",
    "Persisted",
    "Written",
    "free_memory",
    "memory_image",
    "read_url",
    "sweep_memory",
    "write_url",
]
