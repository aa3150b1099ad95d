"""The Python API: a cluster, its jobs, and what their methods return.

The verbs of `%dlrover` and of the command line are these methods under the same names, so a notebook can mix
both; each returns an object that displays as text and as static HTML.

Names load when they are used: the parser of the verbs takes sizes of plans from here, and no charts.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.api.cluster import Cluster
    from dlrover_nb.api.connection import connect
    from dlrover_nb.api.job import Job
    from dlrover_nb.api.job_builder import JobBuilder
    from dlrover_nb.api.policy_lab import lab
    from dlrover_nb.api.rehearsals import rehearse

__all__ = ["Cluster", "Job", "JobBuilder", "connect", "lab", "rehearse"]
_WHERE = {
    "Cluster": "cluster",
    "Job": "job",
    "JobBuilder": "job_builder",
    "connect": "connection",
    "lab": "policy_lab",
    "rehearse": "rehearsals",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)
