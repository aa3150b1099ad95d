"""Choice of a growth law, if any: the evidence of each shape against "as now", from the reports alone.

One model covers all cases. A block of reports lies on `c + a*g(u)`, plus a random walk, plus scatter; without
the law (`a = 0`) it is "as now". The walk makes the comparison valid: on real pod memory a line through half
an hour is often significant against its scatter, and yet predicts worse than the last report, because such
memory drifts. A random walk explains a slope of some steps; a law is accepted only where the series is
straighter, or bends more regularly, than a walk of that size would. With scatter alone the same comparison is
the ordinary information criterion.

A hold-out on the recent tail is added: a law that fits the whole but predicts worse than "as now" on the
latest fifth of the work is dropped. This detects what the likelihood of a fixed law cannot: growth that has
ended (the second epoch brings no new keys, loading is over).

Reports are averaged in at most `N_BLOCK` blocks of equal work. That bounds the cost whatever the number of
reports, and removes short-range correlation. Rejected: AIC on single reports (their correlation makes each
slope significant), an effective sample size in its place (it cannot be estimated where the fit hides the
correlation), maximum likelihood by an optimizer (slower, and gives one point where the likelihood has a
ridge).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.memory.laws import AS_NOW, LAW_OF_SHAPE, LAWS, LOG_PRIOR, shape_at, shapes

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

N_BLOCK = 24
MIN_BLOCK = 8  # below, no law is fitted
SURE = 4.0  # log odds for growth (50 : 1): with hundreds of forecasts per job, 20 : 1 would err in many
TAIL = 0.2  # latest share of the blocks that is held out
WALK = np.array([0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0])  # variance of a step over that of the scatter
WALK.setflags(write=False)
_FINE = 4  # parts of a block over which a shape is averaged
_LEAST_RISE = 1e-9  # of a shape over the blocks; below, it is constant to the precision of floats
_KEPT = 16  # components of the mixture: the rest do not affect the third digit


@dataclass(frozen=True, slots=True)
class Blocks:
    """A series in at most `N_BLOCK` blocks: mean work `u` (1 = now) and mean level of each.

    `basis`, of shape (n_shape, n_block), holds the mean of each shape over the reports of a block: its value
    at the mean work would lie above that where the shape bends, most of all in the first block.
    """

    u: Floats
    y: Floats
    basis: Floats

    def __len__(self) -> int:
        return len(self.u)

    def head(self, n: int) -> Blocks:
        """Return the oldest `n` blocks."""
        return Blocks(self.u[:n], self.y[:n], self.basis[:, :n])


def blocks(u: Floats, y: Floats) -> Blocks:
    """Average a series in blocks of equal work; `u` ascends and ends at 1."""
    if len(u) <= N_BLOCK and np.diff(u).min(initial=1.0) > 0:
        return Blocks(u, y, shapes(u))
    n, u, y = averaged(u, np.ones(len(u)), u, y, n_part=_FINE * N_BLOCK)  # shapes are expensive, and smooth
    _, u_mean, y_mean, basis = averaged(u, n, u, y, shapes(u), n_part=N_BLOCK)
    return Blocks(u_mean, y_mean, basis)


def averaged(u: Floats, weight: Floats, *values: Floats, n_part: int) -> list[Floats]:
    """Return total weight and weighted means of `values` over parts of equal work, empty parts left out.

    Parameters
    ----------
    u
        Work at each report, ascending; weights and the last axis of each of `values` are of the same length.
    """
    edges = u[0] + (u[-1] - u[0]) * np.arange(n_part) / n_part
    first = np.unique(np.searchsorted(u, edges))
    total = np.add.reduceat(weight, first)
    return [total, *(np.add.reduceat(weight * v, first, axis=-1) / total for v in values)]


@dataclass(frozen=True, slots=True)
class Component:
    """One explanation of the series, and its weight among those kept.

    The level at work `u` is `c + a*(g(u) - zero)/rise`, plus `pull` (the displacement by the walk). `walk` is
    the variance of the walk per unit of work, in squared units of the series.
    """

    weight: float
    shape: int  # -1: as now
    walk_index: int
    zero: float
    rise: float
    c: float
    a: float
    pull: float
    walk: float
    still: float  # variance of the walk at now that the reports do not explain
    cov: Floats  # of (c, a), shape (2, 2); zero row and column for an absent law
    open_basis: Floats  # basis at the walk's end that the reports have explained, shape (2,)


@dataclass(frozen=True, slots=True)
class Choice:
    """The law that the reports support, and the weighted explanations under it."""

    law: str
    log_odds: float  # for growth against "as now", before the hold-out
    components: tuple[Component, ...]
    course: Floats  # level of each block under the best explanation, scatter removed


class _Fits:
    """Generalized least squares of all shapes under all walks at once.

    Shapes are taken relative to their rise over the blocks, with 0 at the last: far from the origin they are
    all nearly constant, and would differ from the constant by rounding errors only.
    """

    def __init__(self, data: Blocks, floor: float) -> None:
        m = len(data)
        self.data = data
        self.steps = (data.u - data.u[0]) / (data.u[-1] - data.u[0]) * (m - 1)
        root = np.linalg.cholesky(np.eye(m) + WALK[:, None, None] * np.minimum.outer(self.steps, self.steps))
        self.white = np.linalg.inv(root)
        rise = data.basis[:, -1] - data.basis[:, 0]
        rises = rise > _LEAST_RISE
        self.rise = np.where(rises, rise, 1.0)
        self.basis = (data.basis - data.basis[:, -1:]) / self.rise[:, None]
        self.one, self.y = self.white.sum(2), self.white @ data.y
        self.g = np.swapaxes(self.white @ self.basis.T, 1, 2)  # (n_walk, n_shape, n_block)
        self.one_one, self.g_g = (self.one**2).sum(1)[:, None], (self.g**2).sum(2)
        self.one_g = (self.g @ self.one[:, :, None])[:, :, 0]
        one_y, y_y = (self.one * self.y).sum(1)[:, None], (self.y**2).sum(1)[:, None]
        g_y = (self.g @ self.y[:, :, None])[:, :, 0]
        self.det = np.maximum(self.one_one * self.g_g - self.one_g**2, _LEAST_RISE)
        self.a = (self.one_one * g_y - self.one_g * one_y) / self.det
        self.c = (one_y - self.a * self.one_g) / self.one_one
        self.level = (one_y / self.one_one)[:, 0]
        exact = m * floor**2
        self.rss = np.maximum(y_y - self.c * one_y - self.a * g_y, 0) + exact
        self.rss_now = np.maximum(y_y - one_y**2 / self.one_one, 0)[:, 0] + exact
        half_logdet = np.log(np.diagonal(root, axis1=1, axis2=2)).sum(1)
        grows = -0.5 * m * np.log(self.rss / m) - half_logdet[:, None] - 0.5 * np.log(m) + LOG_PRIOR
        self.grows = np.where((self.a > 0) & rises, grows, -np.inf)
        self.now = -0.5 * m * np.log(self.rss_now / m) - half_logdet

    @property
    def log_odds(self) -> float:
        """Log evidence for growth by any law against none; each further coefficient costs log(m)/2."""
        return _log_sum(self.grows.ravel()) - _log_sum(self.now)

    def law(self, log_weight: float, walk: int, shape: int) -> Component:
        """Return a law under a walk as a component."""
        c, a = self.c[walk, shape], self.a[walk, shape]
        variance = float(self.rss[walk, shape]) / max(len(self.data) - 2, 1)
        end = self._end(walk)
        one, g, cross = self.one_one[walk, 0], self.g_g[walk, shape], self.one_g[walk, shape]
        return Component(
            weight=float(np.exp(log_weight)),
            shape=shape,
            walk_index=walk,
            zero=float(self.data.basis[shape, -1]),
            rise=float(self.rise[shape]),
            c=float(c),
            a=float(a),
            pull=float(end @ (self.y[walk] - c * self.one[walk] - a * self.g[walk, shape])),
            walk=self._walk(variance, walk),
            still=self._still(variance, walk, end),
            cov=variance / self.det[walk, shape] * np.array([[g, -cross], [-cross, one]]),
            open_basis=np.array([self.one[walk] @ end, self.g[walk, shape] @ end]),
        )

    def as_now(self, log_weight: float, walk: int) -> Component:
        """Return "as now" under a walk as a component."""
        variance = float(self.rss_now[walk]) / max(len(self.data) - 1, 1)
        end = self._end(walk)
        return Component(
            weight=float(np.exp(log_weight)),
            shape=-1,
            walk_index=walk,
            zero=0.0,
            rise=1.0,
            c=float(self.level[walk]),
            a=0.0,
            pull=float(end @ (self.y[walk] - self.level[walk] * self.one[walk])),
            walk=self._walk(variance, walk),
            still=self._still(variance, walk, end),
            cov=np.array([[variance / self.one_one[walk, 0], 0.0], [0.0, 0.0]]),
            open_basis=np.array([self.one[walk] @ end, 0.0]),
        )

    def _end(self, walk: int) -> Floats:
        """Return the covariance of the walk's end with the blocks, whitened, in units of the scatter."""
        end: Floats = self.white[walk] @ (WALK[walk] * self.steps)
        return end

    def _walk(self, variance: float, walk: int) -> float:
        span = float(self.data.u[-1] - self.data.u[0])
        return variance * float(WALK[walk]) * (len(self.data) - 1) / span

    def _still(self, variance: float, walk: int, end: Floats) -> float:
        return max(variance * (float(WALK[walk] * self.steps[-1]) - float(end @ end)), 0.0)

    def as_now_components(self) -> tuple[Component, ...]:
        """Return "as now" under each walk, weights summing to one."""
        weights = self.now - _log_sum(self.now)
        best = np.argsort(weights)[::-1]
        return tuple(self.as_now(weights[i], int(i)) for i in best if weights[i] > np.log(1e-3))

    def course(self, component: Component) -> Floats:
        """Return the blocks' levels under an explanation: its law and the walk so far, scatter removed."""
        law = component.c + component.a * (self.basis[component.shape] if component.shape >= 0 else 0.0)
        white = self.white[component.walk_index]
        shared = WALK[component.walk_index] * np.minimum.outer(self.steps, self.steps)
        course: Floats = law + shared @ (white.T @ (white @ (self.data.y - law)))
        return course

    def law_components(self) -> tuple[Component, ...]:
        """Return the best explanations with growth, weights summing to about one."""
        weights = self.grows - _log_sum(self.grows.ravel())
        best = np.argsort(weights, axis=None)[::-1][:_KEPT]
        cells = [divmod(int(i), weights.shape[1]) for i in best]
        return tuple(self.law(weights[i], *i) for i in cells if weights[i] > np.log(1e-3))

    def law_name(self) -> str:
        """Return the law whose shapes have the most evidence."""
        weights = np.exp(self.grows - _log_sum(self.grows.ravel())).sum(0)
        share = {law.name: 0.0 for law in LAWS}
        for name, weight in zip(LAW_OF_SHAPE, weights, strict=True):
            share[name] += float(weight)
        return max(share, key=lambda name: share[name])


def choose(data: Blocks, *, floor: float) -> Choice:
    """Choose between the laws and "as now".

    Parameters
    ----------
    floor
        Resolution of the reports, in their unit: smaller residuals count as zero.
    """
    fits = _Fits(data, floor)
    return _growth(fits, floor) or _as_now(fits)


def choose_growth(data: Blocks, *, floor: float) -> Choice | None:
    """Choose among the laws, None where the reports support none."""
    return _growth(_Fits(data, floor), floor)


def choose_level(data: Blocks, *, floor: float) -> Choice:
    """Return "as now" without a walk, for levels that return to the same place."""
    fits = _Fits(data, floor)
    level = fits.as_now(0.0, 0)
    return Choice(AS_NOW, fits.log_odds, (level,), fits.course(level))


def _growth(fits: _Fits, floor: float) -> Choice | None:
    if len(fits.data) < MIN_BLOCK or fits.log_odds < SURE or not _holds_out(fits.data, floor):
        return None
    components = fits.law_components()
    return Choice(fits.law_name(), fits.log_odds, components, fits.course(components[0]))


def _as_now(fits: _Fits) -> Choice:
    components = fits.as_now_components()
    return Choice(AS_NOW, fits.log_odds, components, fits.course(components[0]))


def _holds_out(data: Blocks, floor: float) -> bool:
    """Whether the laws, fitted without the latest blocks, predict these better than "as now" does."""
    n = len(data) - max(round(TAIL * len(data)), 2)
    tail = data.y[n:]
    fits = _Fits(data.head(n), floor)
    components = fits.law_components() if np.isfinite(fits.log_odds) else ()
    if not components:
        return False
    mean = sum(c.weight * level_at(c, data.u[n:]) for c in components) / sum(c.weight for c in components)
    return float(np.abs(tail - mean).sum()) < float(np.abs(tail - data.y[n - 1]).sum())


def level_at(component: Component, u: Floats) -> Floats:
    """Return the expected level of one explanation at work `u` from now on."""
    if component.shape < 0:
        return np.full(len(u), component.c + component.pull)
    level: Floats = component.c + component.pull + component.a * _basis_at(component, u)
    return level


def variance_at(component: Component, u: Floats) -> Floats:
    """Return the variance of that level: the future walk, what now is unexplained, and the coefficients'."""
    basis = np.stack([np.ones(len(u)), _basis_at(component, u)], axis=1) - component.open_basis
    of_coefficients = np.einsum("ji,ik,jk->j", basis, component.cov, basis)
    variance: Floats = component.still + component.walk * np.maximum(u - 1.0, 0.0) + of_coefficients
    return variance


def _basis_at(component: Component, u: Floats) -> Floats:
    if component.shape < 0:
        return np.zeros(len(u))
    return (shape_at(component.shape, u) - component.zero) / component.rise


def _log_sum(values: Floats) -> float:
    top = float(values.max())
    return top + float(np.log(np.exp(values - top).sum())) if np.isfinite(top) else top
