"""Interactive control plane for parameter-server training, in a notebook.

Public names load when they are used: a node process, the command line's help and ``%load_ext dlrover_nb``
each import only what they need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from IPython.core.interactiveshell import InteractiveShell

    from dlrover_nb.api import Cluster, Job, JobBuilder, connect, lab, rehearse
    from dlrover_nb.core.client.trained_model import load_model
    from dlrover_nb.core.errors import DlroverError
    from dlrover_nb.core.jobfile import dump_job, parse_job
    from dlrover_nb.core.models.elastic.elastic_model import elastic
    from dlrover_nb.core.models.trainable import trainable
    from dlrover_nb.core.structs.job.job import DataSpec, JobSpec, ModelSpec
    from dlrover_nb.core.structs.job.spec_choices import DataFormat, Mode
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan

__version__ = "0.2.0"

__all__ = [
    "Cluster",
    "DataFormat",
    "DataSpec",
    "DlroverError",
    "Job",
    "JobBuilder",
    "JobSpec",
    "Mode",
    "ModelSpec",
    "PlanBounds",
    "PriceTable",
    "ResourcePlan",
    "RolePlan",
    "__version__",
    "connect",
    "dump_job",
    "elastic",
    "lab",
    "load_ipython_extension",
    "load_model",
    "parse_job",
    "rehearse",
    "trainable",
    "unload_ipython_extension",
]

_JOB, _RESOURCES = "dlrover_nb.core.structs.job.job", "dlrover_nb.core.structs.plan.resources"
_WHERE = {
    "Cluster": "dlrover_nb.api",
    "DataFormat": _JOB,
    "DataSpec": _JOB,
    "DlroverError": "dlrover_nb.core.errors",
    "Job": "dlrover_nb.api",
    "JobBuilder": "dlrover_nb.api",
    "JobSpec": _JOB,
    "Mode": _JOB,
    "ModelSpec": _JOB,
    "PlanBounds": "dlrover_nb.core.structs.plan.bounds",
    "PriceTable": "dlrover_nb.core.structs.plan.prices",
    "ResourcePlan": _RESOURCES,
    "RolePlan": _RESOURCES,
    "connect": "dlrover_nb.api",
    "dump_job": "dlrover_nb.core.jobfile",
    "elastic": "dlrover_nb.core.models.elastic.elastic_model",
    "lab": "dlrover_nb.api",
    "rehearse": "dlrover_nb.api",
    "load_model": "dlrover_nb.core.client.trained_model",
    "parse_job": "dlrover_nb.core.jobfile",
    "trainable": "dlrover_nb.core.models.trainable",
}


def __getattr__(name: str) -> object:
    """Load a public name at its first use."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)


def load_ipython_extension(shell: InteractiveShell) -> None:
    """Add `%dlrover` to a shell: ``%load_ext dlrover_nb``."""
    _shell().load(shell)


def unload_ipython_extension(shell: InteractiveShell) -> None:
    """Take `%dlrover` out of a shell: ``%unload_ext dlrover_nb``."""
    _shell().unload(shell)


def _shell() -> ModuleType:
    """Return the module of the magics: by name, because it stands in a layer above this one."""
    return importlib.import_module("dlrover_nb.magics.shell")
