"""What one job offers when a cluster chooses among jobs: its front as columns, nothing else.

A user's view of a job needs bands, breakdowns, reasons and curves (`planner.analysis`); choosing one plan for
each of a thousand jobs needs numbers only, and within a second. So plans are filtered by the mean
coefficients first (`planner.shortlist.Rough`), only the best are predicted, and no candidate is completed;
the chosen plan is completed afterwards. They are predicted as everywhere (`predict_here`): at most linear in
what was added, on the job's host as it is. Rejected: the model's own prediction, which promised other jobs'
cores to a plan that the job's own views would not show as so fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import pricing
from dlrover_nb.core.pareto.dominance import layers, non_dominated
from dlrover_nb.core.pareto.picks import most_efficient, resource_efficiency
from dlrover_nb.core.pareto.space import list_plans
from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.finish_chance import sure_share
from dlrover_nb.core.planner.predictions.completion import bare_candidate, predict_here
from dlrover_nb.core.planner.predictions.transitions import gains, transitions_s
from dlrover_nb.core.planner.shortlist import Rough, grid_of
from dlrover_nb.core.structs.plan.offers import JobOffer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dlrover_nb.core.pareto.space import PlanSpace
    from dlrover_nb.core.perf.model import ThroughputModel
    from dlrover_nb.core.perf.predictions import Predictions
    from dlrover_nb.core.planner.situation import Situation
    from dlrover_nb.core.structs.decisions.candidates import Candidate, Prediction
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]


ENOUGH = 96  # plans that are predicted: the front by the mean coefficients, and the next ones
MOST_OFFERED = 64


@dataclass(frozen=True, slots=True)
class Bid:
    """The front of one job, cheapest first, as columns of length n_plans.

    Parameters
    ----------
    space
        The plans.
    predictions
        Their throughput with bands.
    cost
        As `Candidate.cost`.
    transition_s
        Seconds without training that going there costs.
    gain_samples_per_s
        TG of Eq. 8, the transition's loss taken off.
    now
        Throughput of the plan that runs.
    """

    situation: Situation
    space: PlanSpace
    predictions: Predictions
    cost: Array
    transition_s: Array
    gain_samples_per_s: Array
    now: Prediction

    def __len__(self) -> int:
        return len(self.space)

    @property
    def cpu(self) -> Array:
        """Cores of each whole plan."""
        w, p, worker_cpu, ps_cpu = self.space.axes.T
        return np.asarray(w * worker_cpu + p * ps_cpu)

    @property
    def memory_mib(self) -> Array:
        """MiB of each whole plan."""
        (w, p), (worker_mib, ps_mib) = self.space.axes.T[:2], self.space.memory_mib
        return np.asarray(w * worker_mib + p * ps_mib)

    @property
    def now_cost(self) -> float:
        """Cost of the plan that runs, as `Candidate.cost`."""
        plan = self.situation.plan
        return pricing.cost_per_hour(plan, self.situation.spec.prices) or plan.effort

    @property
    def efficiency(self) -> Array:
        """RE of each plan (Eq. 11)."""
        return resource_efficiency(self.cost, self.gain_samples_per_s, self.now_cost)

    @property
    def best(self) -> int | None:
        """Index of the most efficient plan; None where none gains."""
        return most_efficient(self.cost, self.gain_samples_per_s, self.now_cost)

    @property
    def current(self) -> Candidate:
        """The plan that runs, without breakdown and reason."""
        return bare_candidate(self.situation, self.situation.plan, self.now, 0.0, 0.0)

    def plan(self, index: int) -> ResourcePlan:
        """Return one plan as a record."""
        return self.space.plan(index)

    def offer(self) -> JobOffer:
        """Return it as the record that a planner of many jobs reads.

        Of a long front `MOST_OFFERED` plans, evenly by their rank in cost, the most efficient one among them:
        neighbours differ by less than fits scatter.
        """
        s, n = self.situation, len(self)
        numbers = (self.predictions.samples_per_s, self.gain_samples_per_s, self.cost)
        columns = np.vstack((self.space.axes.T, *numbers)).astype("<f8")
        if n > MOST_OFFERED:
            ranked = np.argsort(self.cost, kind="stable")
            some = ranked[np.linspace(0, n - 1, MOST_OFFERED).astype(np.intp)]
            best = [] if self.best is None else [self.best]
            columns = np.ascontiguousarray(columns[:, np.unique(np.append(some, best).astype(np.intp))])
        return JobOffer(
            job=s.spec.name,
            owner=s.spec.owner,
            plan=s.plan,
            samples_per_s=self.now.samples_per_s,
            cost=self.now_cost,
            is_priced=pricing.cost_per_hour(s.plan, s.spec.prices) not in {None, 0.0},
            n_sample_left=s.n_sample_left,
            columns=columns.tobytes(),
            worker_memory_mib=self.space.worker_memory_mib,
            ps_memory_mib=self.space.ps_memory_mib,
            deadline_left_s=s.deadline_left_s,
            priority=s.spec.priority,
            sure_share=sure_share(self.now, s.deadline_chance, s.due),
            ps_share=self.space.ps_share,
        )

    def candidates(self) -> tuple[Candidate, ...]:
        """Return the plans as records without breakdown and reason, as cluster selection takes them."""
        columns = zip(self.transition_s.tolist(), self.gain_samples_per_s.tolist(), strict=True)
        return tuple(
            bare_candidate(self.situation, self.plan(i), self.predictions[i], pause_s, gain)
            for i, (pause_s, gain) in enumerate(columns)
        )


def bid(situation: Situation, model: ThroughputModel, *, enough: int = ENOUGH) -> Bid:
    """Return the front of a job with a fitted model.

    Parameters
    ----------
    enough
        How many plans to predict in full, the front by the mean coefficients first.

    Raises
    ------
    InvalidValueError
        When the bounds span too many plans to be listed.
    """
    rough = Rough(grid_of(situation), model, situation)
    space, here = list_plans(rough.grid), axes_of([situation.plan])
    axes = space.axes[layers(*rough(space.axes), enough)]
    predictions = predict_here(model, situation, np.concatenate((axes, here)))
    cost, now = rough.cost(axes), predictions[len(axes)]
    best = non_dominated(cost, predictions.samples_per_s[:-1])
    front, speed = space.at(axes[best]), predictions.samples_per_s[best]
    pause_s = transitions_s(front.axes, front.memory_mib, situation)
    return Bid(
        situation=situation,
        space=front,
        predictions=predictions.at(best),
        cost=cost[best],
        transition_s=pause_s,
        gain_samples_per_s=gains(speed, now.samples_per_s, pause_s, situation.n_sample_left / speed),
        now=now,
    )
