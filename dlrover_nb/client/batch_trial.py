"""What a mini-batch costs in an elastic program: its first steps are computed in mini-batches of other sizes.

A step of one mini-batch is as well two of half its rows, or four of a quarter: the same rows, and the same
sum of gradients. So the program trains on while it is measured, and computes nothing twice. Larger sizes are
not tried, as no one knows what fits into memory there. Sizes take turns, so that what else the host does
meets all of them.

A line through the mean times of the sizes says what any mini-batch takes and what each row adds. Neither is
below zero, since a fixed part below zero would promise a gain for ever smaller mini-batches.
"""

from __future__ import annotations

PARTS = (1, 2, 4)
LEAST_S, N_LEAST = 0.5, 3  # of each size, in seconds and in mini-batches: a quota stops a node now and then
TINY = 1e-3  # of the time of a row, where larger mini-batches took no longer


class BatchTrial:
    """Chooses the mini-batches of the first steps of one process, and times them.

    Attributes
    ----------
    cost
        Seconds of any mini-batch and of each row; None: not known yet.
    is_on
        Whether the job asks for it; it may be set at any time.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.cost: tuple[float, float] | None = None
        self._times: dict[int, tuple[int, float]] = {}  # mini-batches and their seconds, by their rows
        self._n_skip = 1  # the first one may compile, or allocate memory

    def parts(self, size: int) -> int:
        """Return into how many mini-batches those of the next step are divided, each of `size` rows now."""
        if not self.is_on or self.cost is not None:
            return 1
        left = [n for n in PARTS if size % n == 0 and not self._is_known(size // n)]
        if not left:
            self._conclude()
        return min(left, key=lambda n: self._of(size // n)[1], default=1)

    def note(self, n_row: int, seconds: float) -> None:
        """Take the time of a mini-batch."""
        if not self.is_on or self.cost is not None:
            return
        if self._n_skip:
            self._n_skip -= 1
            return
        n_batch, whole_s = self._of(n_row)
        self._times[n_row] = n_batch + 1, whole_s + seconds

    def _conclude(self) -> None:
        means = [(n, whole_s / n_batch) for n, (n_batch, whole_s) in self._times.items() if self._is_known(n)]
        if len(means) > 1:  # an odd size cannot be divided
            self.cost = line_through(means)
            self._times.clear()

    def _is_known(self, n_row: int) -> bool:
        n_batch, whole_s = self._of(n_row)
        return n_batch >= N_LEAST and whole_s >= LEAST_S

    def _of(self, n_row: int) -> tuple[int, float]:
        return self._times.get(n_row, (0, 0.0))


def line_through(times: list[tuple[int, float]]) -> tuple[float, float]:
    """Return the fixed part and the part of a row, neither below zero, that are closest in relation."""
    # minimize the squares of (fixed * u + row * v - 1) with u = 1 / seconds, v = rows / seconds
    us, vs = zip(*((1 / seconds, n_row / seconds) for n_row, seconds in times), strict=True)
    uu, vv = sum(u * u for u in us), sum(v * v for v in vs)
    uv = sum(u * v for u, v in zip(us, vs, strict=True))
    u1, v1 = sum(us), sum(vs)
    determinant = uu * vv - uv * uv
    if determinant > 0:
        fixed_s, row_s = (u1 * vv - v1 * uv) / determinant, (v1 * uu - u1 * uv) / determinant
        if row_s <= 0:  # larger ones took no longer: the device is far from being used
            mean_s = sum(seconds for _, seconds in times) / len(times)
            return mean_s, TINY * mean_s / max(n_row for n_row, _ in times)
        if fixed_s >= 0:
            return fixed_s, row_s
    return 0.0, v1 / vv
