"""Objectives of tests: T_iter by Eqs. 1-6, of any coefficients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlrover_nb.core.pareto.objectives import Parts

BATCH = 512


@dataclass(frozen=True)
class Known:
    """Cost in cores and per node, speed by coefficients of (1/lambda_w, w/(p*lambda_p), w/p, 1/p, 1)."""

    coefficients: tuple[float, ...] = (0.15, 0.05, 0.002, 0.5, 0.01)
    per_node: float = 0.1
    per_core: float = 1.0

    def __call__(self, axes):
        w, p, worker_cpu, ps_cpu = axes.T
        iter_s = self._worker_s(worker_cpu) + self._ps_s(w, p, ps_cpu)
        cost = (w * worker_cpu + p * ps_cpu) * self.per_core + self.per_node * (w + p)
        return cost, w * BATCH / np.maximum(iter_s, 1e-9)

    def parts(self, ladders):
        w, p, worker_cpu, ps_cpu = (np.asarray(ladder) for ladder in ladders)
        ps_s = self._ps_s(w[:, None, None], p[:, None], ps_cpu)
        return Parts(
            worker_cost=w[:, None] * (worker_cpu * self.per_core + self.per_node),
            ps_cost=p[:, None] * (ps_cpu * self.per_core + self.per_node),
            worker_s=self._worker_s(worker_cpu) / (w[:, None] * BATCH),
            ps_s=ps_s / (w[:, None, None] * BATCH),
        )

    def _worker_s(self, worker_cpu):
        return self.coefficients[0] / worker_cpu

    def _ps_s(self, w, p, ps_cpu):
        _, updates, sync, embeddings, constant = self.coefficients
        return updates * w / (p * ps_cpu) + sync * w / p + embeddings / p + constant
