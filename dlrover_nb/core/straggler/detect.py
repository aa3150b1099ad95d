"""Find which worker is slow and when, from the iteration times that nodes report.

The rule is AntDT's: the mean iteration of a node over a window is at least λ times the mean over the nodes of
its role. We compare with the mean of the *other* nodes: with itself in the mean a worker of two could never
be more than twice the mean, so λ = 1.5 would require three times its peer's time. For many nodes the two are
the same.

Windows lie at whole multiples of their length on the clock of the reports and not at the first report, so
that a chart redrawn with newer rows shows the old windows unchanged. Pass iteration times without the wait
for peers (`TimeSplit.peers_s`): in synchronous training a straggler makes all others as slow as itself, and
only the time of a node's own work distinguishes them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.tuning import AntDT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

RATIO = AntDT().slowness_ratio  # λ
SHORT_WINDOW_S = 300.0  # for a transient straggler
LONG_WINDOW_S = 600.0  # for a persistent one

Row = tuple[float, str, float]


@dataclass(frozen=True, slots=True)
class Heat:
    """How slow each node was in each window, relative to the other nodes.

    Parameters
    ----------
    nodes
        Rows of the heat map, ``worker-2`` before ``worker-10``.
    starts_s
        Columns: when each window begins, without gaps from the first to the last.
    window_s
        Length of a window.
    threshold
        The ratio from which a node counts as a straggler (λ).
    iter_s
        Mean iteration by node and window; NaN where the node reported none.
    ratios
        `iter_s` over the mean of the other nodes in the window; NaN where it or all others reported none.
    """

    nodes: tuple[str, ...]
    starts_s: tuple[float, ...]
    window_s: float
    threshold: float
    iter_s: tuple[tuple[float, ...], ...]
    ratios: tuple[tuple[float, ...], ...]

    @property
    def is_over(self) -> tuple[tuple[bool, ...], ...]:
        """Where a node was a straggler, by node and window."""
        return tuple(tuple(ratio >= self.threshold for ratio in row) for row in self.ratios)

    @property
    def stragglers(self) -> tuple[str, ...]:
        """Nodes that are stragglers in the last window."""
        return tuple(node for node, over in zip(self.nodes, self.is_over, strict=True) if over and over[-1])


def heat(rows: Iterable[Row], window_s: float = SHORT_WINDOW_S, ratio: float = RATIO) -> Heat:
    """Compare nodes window by window.

    Parameters
    ----------
    rows
        Reports of the nodes of one role in any order: when, which node, mean iteration in seconds. A report
        without an iteration (0 or NaN) is ignored.
    window_s
        Length of a window in seconds.
    ratio
        λ: multiple of the others' mean from which on a node is a straggler.

    Raises
    ------
    InvalidValueError
        When the window is not above 0 or the ratio not above 1.
    """
    _check.above_zero("window_s", window_s)
    if not (math.isfinite(ratio) and ratio > 1):
        _check.above_zero("ratio - 1", ratio - 1, hint="1.5 is usual")
    valid = [row for row in rows if math.isfinite(row[2]) and row[2] > 0]
    if not valid:
        return Heat((), (), window_s, ratio, (), ())
    nodes = sorted({node for _, node, _ in valid}, key=_natural)
    windows = np.floor(np.array([at_s for at_s, _, _ in valid]) / window_s).astype(np.int64)
    first, n_window = int(windows.min()), int(np.ptp(windows)) + 1
    index = {node: i for i, node in enumerate(nodes)}
    which = np.array([index[node] for _, node, _ in valid])
    means = _means(which, windows - first, np.array([row[2] for row in valid]), (len(nodes), n_window))
    return Heat(
        nodes=tuple(nodes),
        starts_s=tuple((first + i) * window_s for i in range(n_window)),
        window_s=window_s,
        threshold=ratio,
        iter_s=_rows(means),
        ratios=_rows(beside_others(means)),
    )


def _means(
    which: NDArray[np.int64], window: NDArray[np.int64], iter_s: Floats, shape: tuple[int, int]
) -> Floats:
    """Return the mean of each node and window, NaN where there is no report; ndarray of `shape`."""
    cell = np.ravel_multi_index((which, window), shape)
    n_cell = shape[0] * shape[1]
    total_s = np.bincount(cell, iter_s, n_cell)
    count = np.bincount(cell, minlength=n_cell)
    means: Floats = np.divide(total_s, count, out=np.full(n_cell, np.nan), where=count > 0)
    return means.reshape(shape)


def beside_others(means: Floats) -> Floats:
    """Return each mean over the mean of the other nodes of its window.

    Parameters
    ----------
    means
        ndarray of shape (n_nodes, n_windows); NaN where a node reported none.

    Returns
    -------
    ndarray of shape (n_nodes, n_windows); NaN where the node or all others reported none.
    """
    is_finite = np.isfinite(means)
    n_other = is_finite.sum(axis=0) - is_finite
    others_s = np.where(is_finite, means, 0.0)
    rest_s = np.array([np.delete(others_s, i, axis=0).sum(axis=0) for i in range(len(means))])
    compared = is_finite & (n_other > 0)
    ratios: Floats = np.divide(means * n_other, rest_s, out=np.full(means.shape, np.nan), where=compared)
    return ratios


def _rows(table: Floats) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in table.tolist())


def _natural(node: str) -> tuple[int, str]:
    return len(node), node
