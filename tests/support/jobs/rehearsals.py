"""A rehearsal whose staleness costs what is planted in it."""

from __future__ import annotations

import numpy as np

from dlrover_nb.core.rehearsal.curves import curve_of
from dlrover_nb.core.rehearsal.rehearsal import Rehearsal, Settings
from dlrover_nb.core.rehearsal.runs import Run
from dlrover_nb.core.rehearsal.ways import WayName
from dlrover_nb.core.structs.job.job import JobSpec


def rehearsal(
    *,
    auc_per_update: float = -0.001,
    noise: float = 0.0005,
    n_seed: int = 5,
    n_update: int = 400,
    ways: tuple[WayName, ...] = (WayName.ASP,),
    holds_out_own: bool = True,
    n_seed_asked: int | None = None,
) -> Rehearsal:
    """Return one in which each update of age changes the AUC by so much; the loss by as much the other way."""
    generator, spec = np.random.default_rng(5), JobSpec("ctr")
    settings = Settings(n_seed=n_seed_asked or n_seed, workers=(1, 2, 8, 32), ways=ways)
    runs = []
    for seed in range(n_seed):
        start = generator.normal(0.75, 0.01)
        for way in ways:
            for delay in settings.delays(overlap=False):
                cost = auc_per_update * delay.age / (10 if way is WayName.GBA else 1)
                change = cost + (generator.normal(0, noise) if delay.age else 0.0)
                loss, auc = 0.4 - change, start + change
                runs.append(Run(str(way), delay, seed, loss, auc, float(delay.age), n_update))
    curves = tuple(curve_of(runs, way, spec, n_row=50_000, n_epoch=1) for way in ways)
    return Rehearsal(
        "ctr", settings, tuple(runs), curves, 50_000, 10_000, n_update, False, holds_out_own, 31.0
    )
