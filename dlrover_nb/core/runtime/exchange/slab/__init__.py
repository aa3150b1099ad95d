"""Shared memory between a worker and a PS of one host: arrays lie there, and messages only say where."""

from dlrover_nb.core.runtime.exchange.slab.of_ps import AttachedSlabs
from dlrover_nb.core.runtime.exchange.slab.of_worker import OfferedSlab

__all__ = ["AttachedSlabs", "OfferedSlab"]
