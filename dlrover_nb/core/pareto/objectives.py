"""Input of a solver: cost and throughput of plans, as one function of many rows.

It is a separate module, below the solvers and below `pareto.solve`, which calls them.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Objectives = Callable[[Array], tuple[Array, Array]]  # rows -> cost (down), throughput (up) of each
