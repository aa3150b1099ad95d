"""What a mini-batch costs on one device, measured by computing some of several sizes.

AntDT takes two bounds of a mini-batch from such a measurement (section VI-B): the saturation point, below
which a smaller one hardly saves time, and what fits into memory. Both follow from three numbers: the time
that any mini-batch takes, the time that each row adds, and how many rows fit. They hold for a program on a
kind of device, in later jobs too; so a measurement names its device, and who made it when.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

SATURATED = 0.1  # of the time of a mini-batch, that does not depend on its rows: below, a device is used well
MOST_ROWS = 2**31


@dataclass(frozen=True, slots=True)
class BatchCost:
    """The cost of a mini-batch of one worker.

    Parameters
    ----------
    fixed_s
        Seconds of a mini-batch whatever its size.
    row_s
        Seconds that each row adds.
    most
        Rows of a mini-batch that fits into the memory of the node; None: memory does not depend on rows.
    device
        Kind of device that it was measured on, with what the node may use of it; empty: not known.
    job, at_s
        The earlier job that measured it, and when (Unix time); empty: the worker itself did.
    """

    fixed_s: float
    row_s: float
    most: int | None = None
    device: str = ""
    job: str = ""
    at_s: float = 0.0

    def __post_init__(self) -> None:
        _check.at_least("fixed_s", self.fixed_s, 0)
        _check.above_zero("row_s", self.row_s)
        _check.finite("at_s", self.at_s)
        if self.most is not None:
            _check.at_least("most", self.most, 1)

    @property
    def least(self) -> int:
        """The saturation point: rows by which the fixed part is `SATURATED` of the time, within memory."""
        rows = math.ceil(self.fixed_s * (1 - SATURATED) / (SATURATED * self.row_s))
        return max(min(rows, self.most or MOST_ROWS), 1)

    def seconds(self, size: int, times: int = 1) -> float:
        """Return how long so many mini-batches of a size take."""
        return times * (self.fixed_s + size * self.row_s)


@dataclass(frozen=True, slots=True)
class ProgramCost:
    """What a mini-batch of a program costs, for later jobs of the same program.

    Parameters
    ----------
    program
        What a mini-batch computes, as `JobTraits.program` says it.
    cost
        With its device, the job that measured it, and when.
    """

    program: str
    cost: BatchCost

    def __post_init__(self) -> None:
        for name, text in (
            ("program", self.program),
            ("device", self.cost.device),
            ("job", self.cost.job),
        ):
            if not text:
                raise InvalidValueError(
                    f"{name} of a cost in the history must be set, got none; measure anew"
                )
