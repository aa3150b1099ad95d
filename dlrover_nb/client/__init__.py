"""Services of dlrover-nb for programs of others: exact shards, checkpoints, progress, and requests to stop.

Nothing but the standard library is imported, and Python 3.8 is enough, so the folder may be copied into any
image. Outside of a job the same program runs alone: all rows are its own, and it is never asked to stop.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import checkpoint
from .job import acknowledge, batch_size, in_job, is_changing, should_stop
from .link import ServiceError
from .shards import Shard, passes, shards
from .steps import step as report
from .tf_data import ShardedData, tf_dataset

if TYPE_CHECKING:
    from .torch_data import ShardDataset, ShardSampler, Ticket

__all__ = [
    "ServiceError",
    "Shard",
    "ShardDataset",
    "ShardSampler",
    "ShardedData",
    "Ticket",
    "acknowledge",
    "batch_size",
    "checkpoint",
    "in_job",
    "is_changing",
    "passes",
    "report",
    "shards",
    "should_stop",
    "tf_dataset",
]

_OF_TORCH = {"ShardDataset", "ShardSampler", "Ticket"}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - the module's own names
    """Import what needs torch when it is used."""
    if name in _OF_TORCH:
        from . import torch_data  # noqa: PLC0415 - programs without torch have none

        return getattr(torch_data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
