"""The growth laws: each a family of curves in one variable that starts at 0 and never bends upwards.

Memory follows `c + a * g(u)` with `u` = work done over work done so far, where `g` is one shape of one law;
`c` and `a` are linear, so that a law is no more than a table of shapes. The nonlinear parameters (exponent,
scale) are a small grid: a finer optimum is not determined by real series, and averaging over a grid carries
that uncertainty into the forecast where an optimizer would drop it (variable projection with the outer search
replaced by a sum).

All shapes are concave. The number of distinct keys is concave, as more keys of a later sample are known
already; a leak grows at most with the work. Shapes that bend upwards (n^1.5, n log n) fit a recent burst well
and forecast absurd sizes from it, so they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    Floats = npt.NDArray[np.float64]

AS_NOW = "as now"  # no law: the present level stays


@dataclass(frozen=True, slots=True)
class Law:
    """A family of growth curves.

    Attributes
    ----------
    shape
        Maps work ``u`` and the family's one nonlinear parameter to the curve's height; broadcasts.
    parameters
        Grid of that parameter.
    """

    name: str
    shape: Callable[[Floats, Floats], Floats]
    parameters: tuple[float, ...]

    def table(self, u: Floats) -> Floats:
        """Return every shape of the family at `u`, ndarray of shape (n_parameter, n_point)."""
        return self.shape(u[np.newaxis, :], np.asarray(self.parameters)[:, np.newaxis])


def _linear(u: Floats, scale: Floats) -> Floats:
    return u * scale


def _power(u: Floats, exponent: Floats) -> Floats:
    return np.maximum(u, 0.0) ** exponent


def _saturating(u: Floats, scale: Floats) -> Floats:
    return -np.expm1(-u / scale)


def _logarithmic(u: Floats, scale: Floats) -> Floats:
    return np.log1p(u / scale)


# of a curve that ends: so close that a series lies between no two of them, up to ends far ahead
_SCALES = tuple(np.round(0.03 * 1.12 ** np.arange(44), 4).tolist())

LAWS = (
    Law("linear", _linear, (1.0,)),  # c + a*n
    Law("power", _power, tuple(np.round(np.arange(0.15, 0.976, 0.025), 3).tolist())),  # c + a*n^b
    Law("saturating", _saturating, _SCALES),  # c + a*(1 - exp(-n/b))
    Law("logarithmic", _logarithmic, (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)),  # c + a*log(1 + n/b)
)


def shapes(u: Floats) -> Floats:
    """Return the shapes of all laws at `u`, ndarray of shape (n_shape, n_point), in the order of LAWS."""
    return np.concatenate([law.table(u) for law in LAWS])


_SHAPES = tuple((law, parameter) for law in LAWS for parameter in law.parameters)


def shape_at(index: int, u: Floats) -> Floats:
    """Return one of these shapes at `u`, of the same shape as `u`."""
    law, parameter = _SHAPES[index]
    return law.shape(u, np.asarray(parameter))


LAW_OF_SHAPE = tuple(law.name for law in LAWS for _ in law.parameters)
LOG_PRIOR = np.log([1 / (len(LAWS) * len(law.parameters)) for law in LAWS for _ in law.parameters])
LOG_PRIOR.setflags(write=False)
