"""The numbers of NEARCHUS in one record."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When cores count as used, a link as full, and a job as stable.

    Parameters
    ----------
    job
        Share of all allocated cores from which on no bottleneck is claimed (E_thd_job).
    assignment
        Share of a node's or a role's cores below which the rest is idle and may move (E_thd_opt).
    link, link_samples, n_link
        A PS's network is the bottleneck where more than `link_samples` of its last `n_link` samples exceed
        `link` of its link's capacity.
    n_stable, stable_cv
        Stable: over the last `n_stable` samples the coefficient of variation is below `stable_cv`.
    scale_up
        Cores that are added at once, as a share of the present ones (R_up).
    min_gain
        Growth of the used cores from which on a change counts as an improvement. The paper counts any. A
        worker more of 60 brings a tenth of a percent, so a larger number ends the search of large jobs early.
        By noise alone a change seems an improvement as rarely as a sequence has a new record.
    """

    job: float = 0.95
    assignment: float = 0.8
    link: float = 0.9
    link_samples: float = 0.1
    n_link: int = 30
    n_stable: int = 5
    stable_cv: float = 0.05
    scale_up: float = 0.5
    min_gain: float = 1e-4


PAPER = Thresholds()
