"""Where a job with early stopping is likely to end, by its evaluations so far (Qore-DL's adjuster).

A curve is fitted to the evaluations, `y = a / (k + s)^p + c`: with p = 1 it is Optimus's inverse curve. The
rule of the job (`stop_rule`) is then followed along many paths that go on from the last evaluation: the
curve, with the noise of the evaluations so far, and with a drift, of which size the curve drifted from later
evaluations when it was fitted to the first ones alone. The middle path and the ends of a 90 % band are the
forecast. So the band is as wide as this job's own curve has deserved, and a rule that ends on noise (no gain
in one evaluation) is predicted as such: a smooth curve alone would fall for ever.

All paths use the same numbers in the same order, so that a tighter target never ends earlier.

Rejected: the LSTM of the paper. On real curves of this product's models it was further off than the curve
(`benchmarks/stopping.py`), and costs seconds where the curve costs milliseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.basics.numerics import nnls
from dlrover_nb.core.deadline.stop_rule import decline_rate, evaluation_step, merits, stops_at
from dlrover_nb.core.structs.job.early_stopping import BAND, NAMES, EarlyStopping, Metric, StopForecast

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Array = NDArray[np.float64]

LEAST_POINTS = 4  # of a curve with a, s and c; one more than it has
POWERS = (0.3, 0.5, 1.0)  # 1: the inverse curve
SHIFTS = np.geomspace(3e-3, 10.0, 24)  # of the samples so far
CUTS = (0.5, 0.6, 0.7, 0.8, 0.9)  # of the evaluations, to which earlier curves are fitted
LEAST_DRIFT = 0.15  # of the range of the later evaluations, where as many samples are ahead as are done
N_PATH = 200
N_FITTED = 64  # evaluations that the curve is fitted to: of more, means of neighbours


@dataclass(frozen=True, slots=True)
class Curve:
    """`a / (k / unit + s)^p + c` over training samples k; falls, or is level where a is 0."""

    unit: float
    power: float
    shift: float
    a: float
    c: float

    def at(self, n_sample: Array) -> Array:
        """Return the value after so many samples."""
        return np.asarray(self.a * (n_sample / self.unit + self.shift) ** -self.power + self.c)


@dataclass(frozen=True, slots=True)
class Extent:
    """How far a job has come, and can: samples trained, those of a pass, and passes."""

    n_done: int
    n_train: int
    n_epoch: int

    @property
    def n_total(self) -> int:
        """Samples of all passes."""
        return self.n_train * self.n_epoch


def fit_curve(n_sample: Array, values: Array) -> Curve:
    """Fit the curve by non-negative least squares, for a grid of powers and shifts.

    Parameters
    ----------
    n_sample, values
        Of evaluations of which less is better: shape (n_points,), samples rising.
    """
    unit, base = float(n_sample[-1]), float(values.min())
    k = n_sample / unit
    scale = float(np.ptp(values)) or 1.0
    weight = np.sqrt(k)  # later evaluations tell more of what comes than the first fall
    target = weight * (values - base) / scale
    best: tuple[float, float, float, Array] | None = None
    for power in POWERS:
        for shift in SHIFTS:
            fall = (k + shift) ** -power
            rows = np.column_stack((fall / fall[0], np.ones_like(k), -np.ones_like(k)))
            coefficients, error = nnls(weight[:, None] * rows, target)
            if best is None or error < best[0]:
                best = float(error), power, float(shift), coefficients / np.array([fall[0], 1.0, 1.0])
    assert best is not None
    _, power, shift, (a, up, down) = best
    return Curve(unit, power, shift, float(a) * scale, base + float(up - down) * scale)


def forecast(
    points: Sequence[tuple[int, float]], rule: EarlyStopping, extent: Extent, *, seed: int = 0
) -> StopForecast:
    """Return where a job is likely to end.

    Parameters
    ----------
    points
        Samples trained and the rule's metric at each evaluation, samples rising.
    seed
        Of the paths.
    """
    values = np.array([value for _, value in points], dtype=np.float64)
    moments = np.array([n for n, _ in points], dtype=np.float64)
    why_not = _why_not(moments, values, rule)
    if why_not or extent.n_done >= extent.n_total:
        return _unknown(points, rule, extent, why_not or "all rows are trained")
    ends = _ends(moments, values, rule, extent, np.random.default_rng(seed))
    low, mid, high = np.quantile(ends, (0.5 - BAND / 2, 0.5, 0.5 + BAND / 2), method="inverted_cdf")
    metric = Metric(rule.metric)
    rate = decline_rate(values.tolist(), metric)
    step = evaluation_step(rule, extent.n_train, extent.n_epoch)
    soonest = extent.n_done + step // 2  # it trains on until an evaluation is over
    at, first, last = (int(min(max(each, soonest), extent.n_total)) for each in (mid, low, high))
    return StopForecast(metric, extent.n_done, extent.n_total, extent.n_train, at, first, last, decline=rate)


def _why_not(at: Array, values: Array, rule: EarlyStopping) -> str:
    name = NAMES[Metric(rule.metric)]
    if not np.isfinite(values).all():
        return f"an evaluation has no finite {name}"
    if (np.diff(at) <= 0).any():
        return "its evaluations are not in order"
    if len(values) < LEAST_POINTS:
        return f"it needs {LEAST_POINTS} evaluations, and has {len(values)}"
    if int(np.argmax(merits(values, rule.metric))) == 0:
        return f"its {name} has not become better since the first evaluation"
    return ""


def _unknown(
    points: Sequence[tuple[int, float]], rule: EarlyStopping, extent: Extent, why_not: str
) -> StopForecast:
    metric, end = Metric(rule.metric), extent.n_total
    return StopForecast(
        metric,
        extent.n_done,
        end,
        extent.n_train,
        end,
        end,
        end,
        decline=decline_rate([value for _, value in points], metric),
        why_not=why_not,
    )


def _ends(at: Array, values: Array, rule: EarlyStopping, extent: Extent, rng: np.random.Generator) -> Array:
    """Return where the rule ends each path: shape (n_paths,), in samples."""
    step = evaluation_step(rule, extent.n_train, extent.n_epoch)
    # the last pass is followed by the final evaluation, which ends nothing
    ahead = np.arange(at[-1] + step, extent.n_total, step)
    worse = -merits(values, rule.metric)
    k, y = _thinned(at), _thinned(worse)
    curve = fit_curve(k, y)
    noise = (worse - curve.at(at)) * np.sqrt(len(worse) / max(len(worse) - 3, 1))
    drifts = _drifts(k, y)
    chosen = rng.integers(len(drifts), size=(N_PATH, 1))
    own = drifts[chosen] * np.log(ahead / at[-1])
    paths = curve.at(ahead) + own + noise[rng.integers(len(noise), size=(N_PATH, len(ahead)))]
    past = np.broadcast_to(values, (N_PATH, len(values)))
    sign = -1.0 if rule.metric == Metric.AUC else 1.0
    end = stops_at(np.concatenate((past, sign * paths), axis=1), rule)
    moments = np.concatenate((at, ahead, [float(extent.n_total)]))
    return np.asarray(moments[end])


def _drifts(k: Array, y: Array) -> Array:
    """Return how far earlier curves were off per logarithm of the samples ahead, to both sides alike."""
    least = LEAST_DRIFT * float(np.ptp(y[len(y) // 2 - 1 :])) / np.log(2)
    sizes = [least]
    for cut in sorted({max(int(len(k) * share), LEAST_POINTS) for share in CUTS}):
        if cut < len(k):
            off = y[cut:] - fit_curve(k[:cut], y[:cut]).at(k[cut:])
            horizon = np.log(k[cut:] / k[cut - 1])
            sizes.append(max(abs(float(off.mean())) / float(horizon.mean()), least))
    spread = np.array(sorted(sizes))
    return np.concatenate((-spread[::-1], spread))


def _thinned(column: Array) -> Array:
    """Return at most `N_FITTED` values: of more, means of neighbours."""
    n = min(len(column), N_FITTED)
    return np.array([part.mean() for part in np.array_split(column, n)])
