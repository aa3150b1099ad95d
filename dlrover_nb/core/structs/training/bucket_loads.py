"""What parameter servers measured of each bucket of rows."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

N_BUCKET = 256  # units in which table rows are spread over PS and moved between them; a power of two


@dataclass(frozen=True, slots=True)
class BucketLoad:
    """Rows of one PS by bucket, measured over a window in which it served under one epoch.

    Parameters
    ----------
    ps_epoch
        The group whose buckets it served.
    window_s, busy_s
        Seconds of the window, and those of them in which the PS did not wait for requests.
    buckets
        Ascending; in others it neither held nor served rows.
    n_held, n_served
        Rows at the end of the window, and rows pulled or pushed during it, in the order of `buckets`.
        Served rows are exact in sum; their division is measured by a sample of the requests.
    """

    ps_epoch: int
    window_s: float
    busy_s: float
    buckets: tuple[int, ...]
    n_held: tuple[int, ...]
    n_served: tuple[int, ...]

    def __post_init__(self) -> None:
        _check.above_zero("window_s", self.window_s)
        _check.at_least("busy_s", self.busy_s, 0.0)
        is_ascending = all(a < b for a, b in pairwise((-1, *self.buckets, N_BUCKET)))
        if not is_ascending or not len(self.buckets) == len(self.n_held) == len(self.n_served):
            raise InvalidValueError(
                f"expected buckets in [0, {N_BUCKET}), ascending, each with two counts of rows, "
                f"got {self.buckets}, {len(self.n_held)} and {len(self.n_served)} counts"
            )
        _check.at_least("rows", min((*self.n_held, *self.n_served), default=0), 0)
