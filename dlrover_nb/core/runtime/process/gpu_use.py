"""What a node's GPUs do, as NVIDIA's management library (NVML) counts it; nothing where it is not there.

Its Python binding is an extra (``dlrover-nb[gpu]``), since nodes without GPUs need none of it. It is asked
once a report. A GPU counts as busy while any program computes on it: NVML does not say how much of it a
program fills, so a busy GPU may have room, but an idle one has no work.

Rejected: torch's own counts, which know the memory of this process alone and nothing of the time.
"""

from __future__ import annotations

import importlib
import logging
import os
from statistics import fmean
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

_log = logging.getLogger(__name__)

MODULE = "pynvml"
VISIBLE = "CUDA_VISIBLE_DEVICES"  # what Ray gives a node, and what torch heeds
_MIB = 1 << 20


class GpuUse(NamedTuple):
    """The share of the last moments in which GPUs computed (their mean), and the MiB in use on them."""

    busy: float
    memory_mib: float


class Gpus:
    """The GPUs of this process.

    Parameters
    ----------
    nvml
        The module ``pynvml``, not yet initialized.
    environment
        Where `VISIBLE` names some of the machine's GPUs, by number or by id; without it all count.
    """

    def __init__(self, nvml: Any, environment: Mapping[str, str]) -> None:  # noqa: ANN401 - it has no types
        self._nvml = nvml
        nvml.nvmlInit()
        visible = environment.get(VISIBLE)
        names = map(str, range(nvml.nvmlDeviceGetCount())) if visible is None else visible.split(",")
        self._handles = [self._handle(name.strip()) for name in names if name.strip()]

    def _handle(self, name: str) -> object:
        by_number, by_id = self._nvml.nvmlDeviceGetHandleByIndex, self._nvml.nvmlDeviceGetHandleByUUID
        return by_number(int(name)) if name.isdecimal() else by_id(name)

    def use(self) -> GpuUse | None:
        """Return what they do now; None where there are none, or a driver does not say."""
        try:
            busy = [self._nvml.nvmlDeviceGetUtilizationRates(each).gpu / 100 for each in self._handles]
            used = [self._nvml.nvmlDeviceGetMemoryInfo(each).used / _MIB for each in self._handles]
        except self._nvml.NVMLError:  # parts of a GPU (MIG) have no such counts
            return None
        return GpuUse(fmean(busy), sum(used)) if busy else None


def gpus_here() -> Gpus | None:
    """Return the GPUs of this process; None where there are none, or nothing that counts their use."""
    try:
        nvml = importlib.import_module(MODULE)
    except ImportError:
        _log.info("what GPUs do is not shown: %s is missing (pip install 'dlrover-nb[gpu]')", MODULE)
        return None
    try:
        return Gpus(nvml, os.environ)
    except nvml.NVMLError as error:
        _log.info("what GPUs do is not shown: %s", error)
        return None
