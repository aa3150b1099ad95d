"""What a plan gave when it ran, for beside what is predicted of it.

A person who has tried a plan asks of any prediction of it how that compares. The number is the measured one,
as charts and outcomes have it, with what other work on the host took at the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, fsum, log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True)
class Tried:
    """The mean throughput of a plan that ran, and the steady windows behind it."""

    samples_per_s: float
    n_window: int


def tried(snapshot: JobSnapshot, plan: ResourcePlan) -> Tried | None:
    """Return what a plan gave: by its latest outcome, else by its windows; None: it was never measured.

    The first plan of a job has no outcome, as no decision led to it. Memory does not make it another plan.
    """
    for outcome in reversed(snapshot.outcomes):
        if outcome.plan.short == plan.short:
            return Tried(outcome.measured_samples_per_s, outcome.n_sample)
    windows = [sample for sample in snapshot.samples if sample.plan.short == plan.short]
    if not windows:
        return None
    n_window = sum(each.n_window for each in windows)
    mean = fsum(each.n_window * log(each.samples_per_s) for each in windows) / n_window
    return Tried(exp(mean), n_window)
