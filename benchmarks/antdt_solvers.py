"""Compare the solvers of `core.straggler` with a solver of integer programs (HiGHS) on small problems."""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from dlrover_nb.core.straggler.accumulation import Kind, share_accumulated
from dlrover_nb.core.straggler.accumulation import slowest_s as slowest_kind_s
from dlrover_nb.core.straggler.batch_solver import Share, share_batch, slowest_s

TOLERANCE = 1e-6  # of HiGHS


def least_s(shares: list[Share], total: int) -> float:
    """Return the optimum of Eq. 3; variables: a size for each worker, and z."""
    n = len(shares)
    times = np.hstack([np.diag([1 / share.samples_per_s for share in shares]), -np.ones((n, 1))])
    found = milp(
        np.append(np.zeros(n), 1.0),
        constraints=[
            LinearConstraint(times, -np.inf, 0.0),
            LinearConstraint(np.append(np.ones(n), 0.0), total, total),
        ],
        bounds=Bounds(np.append([share.least for share in shares], 0.0), np.inf),
        integrality=np.append(np.ones(n), 0),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun)


def least_accumulated_s(kinds: list[Kind], total: int) -> float:
    """Return the optimum of Eq. 4; variables: for each kind and C whether it is used and the size, and z."""
    cells = [(i, c) for i, k in enumerate(kinds) for c in range(k.least_accumulated, k.most_accumulated + 1)]
    n = len(cells)
    used, sized = (
        np.hstack([np.eye(n), np.zeros((n, n + 1))]),
        np.hstack([np.zeros((n, n)), np.eye(n, n + 1)]),
    )
    least = np.array([[kinds[i].least] for i, _ in cells])
    most = np.array([[kinds[i].most] for i, _ in cells])
    of_kind = np.array([[float(i == k) for i, _ in cells] for k in range(len(kinds))])
    times = np.array([[c / kinds[k].samples_per_s * (i == k) for i, c in cells] for k in range(len(kinds))])
    z = np.zeros(2 * n + 1)
    z[-1] = 1.0
    found = milp(
        z,
        constraints=[
            LinearConstraint(sized - least * used, 0.0, np.inf),
            LinearConstraint(sized - most * used, -np.inf, 0.0),
            LinearConstraint(of_kind @ used, 1.0, 1.0),
            LinearConstraint(times @ sized - z, -np.inf, 0.0),
            LinearConstraint(np.array([kinds[i].n * c for i, c in cells]) @ sized, total, total),
        ],
        bounds=Bounds(0.0, np.append(np.ones(n), np.full(n + 1, np.inf))),
        integrality=np.append(np.ones(2 * n), 0),
        options={"mip_rel_gap": 0.0},
    )
    return float(found.fun)


def share_optimal(n_instance: int) -> float:
    """Return the share of random problems, half of either kind, in which the solvers agree with HiGHS."""
    rng, equal = np.random.default_rng(0), []
    for _ in range(n_instance):
        shares = [Share(float(v), int(rng.integers(0, 10))) for v in rng.uniform(0.5, 40, rng.integers(2, 9))]
        total = int(rng.integers(100, 400))
        ours = slowest_s(shares, share_batch(shares, total))
        equal.append(abs(ours / least_s(shares, total) - 1) <= TOLERANCE)
        least = rng.integers(1, 30, rng.integers(1, 5)).tolist()
        kinds = [
            Kind(int(rng.integers(1, 9)), float(rng.uniform(1, 9)), low, low + int(rng.integers(0, 60)))
            for low in least
        ]
        total = int(sum(k.n * rng.integers(1, 4) * rng.integers(k.least, k.most + 1) for k in kinds))
        ours = slowest_kind_s(kinds, share_accumulated(kinds, total))
        equal.append(abs(ours / least_accumulated_s(kinds, total) - 1) <= TOLERANCE)
    return sum(equal) / len(equal)
