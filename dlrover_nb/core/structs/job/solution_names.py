"""Names of what finds stragglers, and of what can be asked for actions against them."""

from __future__ import annotations

from enum import StrEnum


class RuleName(StrEnum):
    """A rule of `core.straggler.rules`, by its name."""

    ROBUST = "robust"
    RATIO = "ratio"  # AntDT's


class SolutionName(StrEnum):
    """A solution of `core.straggler.solutions`, by its name."""

    ANTDT_ND = "antdt-nd"
    ANTDT_DD = "antdt-dd"
    BACKUP_WORKERS = "backup-workers"
    ADJUST_LR = "adjust-lr"
    LB_BSP = "lb-bsp"
    NONE = "none"


MEASURES = frozenset({SolutionName.ANTDT_DD, SolutionName.LB_BSP})  # what a mini-batch costs on each worker
