"""What each job in auto mode may plan with, decided for all jobs together (Eqs. 12-14).

Each job offers the plans that its own fit finds good. Where the largest of all fit together no job needs a
quota. Else one plan per job is selected within the machines and the teams' money, and each job gets a quota:
what that plan needs, and an equal part of the rest, so that it can experiment. A job keeps what it has, if it
would be made slower for others, unless shrinking is allowed.

A choice is kept while another one is not clearly better (`min_gain`), since each change of quotas is followed
by changes of jobs, and what jobs predict scatters from fit to fit.

The literal greedy of the paper takes candidates by descending RE * WG; the default finds shadow prices first
(`greedy.selection`), and is never worse by more than its bound tells. The method `qore` selects nothing: it
lets late jobs grow and those with slack give back (`by_deadline`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core import extensions
from dlrover_nb.core.brain.by_deadline import adjusted
from dlrover_nb.core.brain.machines import all_fit
from dlrover_nb.core.brain.offer_columns import RESOURCES, columns_of
from dlrover_nb.core.brain.queue_order import order_of
from dlrover_nb.core.brain.shares import ClusterPlan, Share, quota_of, unchanged
from dlrover_nb.core.errors import CapacityError, InvalidValueError
from dlrover_nb.core.greedy import REMAINING_TIME, literal, refusal, remaining_time, select, weight_of
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.job.tuning import ClusterTuning
from dlrover_nb.core.structs.plan.bounds import Quota
from dlrover_nb.core.structs.plan.capacity import fits, plan_needs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from dlrover_nb.core.brain.offer_columns import OfferColumns
    from dlrover_nb.core.greedy import Bids, Selection, Weight
    from dlrover_nb.core.structs.plan.capacity import Capacity
    from dlrover_nb.core.structs.plan.offers import JobOffer
    from dlrover_nb.core.structs.plan.resources import ResourcePlan

    Array = NDArray[np.float64]
    Index = NDArray[np.intp]

CUTS = (1.0, 0.98, 0.95, 0.9, 0.8, 0.7)  # of the machines, until the chosen nodes fit one by one
URGENT = 100.0  # of the largest weight: of a plan that meets a deadline which the present plan misses
MOST_NAMED = 3

Method = Callable[..., ClusterPlan]


@dataclass(frozen=True, slots=True)
class BrainSettings:
    """How plans are chosen.

    Parameters
    ----------
    method
        ``weighted``, ``greedy`` as the paper has it, or ``qore``: by deadlines, whatever the weight; or of a
        package.
    weight
        Of jobs' gains, by its name in `greedy.WEIGHTS`, or of a package.
    shrink
        Whether a job may be made slower to make room for others.
    min_gain
        Share of the objective by which another choice must be better than the last one.
    ceilings
        Money per hour that the jobs of each owner may cost together.
    order
        Of the queue, by its name in `queue_order.ORDERS`, or of a package.
    start_share
        Share of the cores that a waiting job asks for, with which it may start: above 0, at most 1.
    tuning
        Parameters that the papers leave to operators.
    """

    method: str = "weighted"
    weight: str = REMAINING_TIME
    shrink: bool = False
    min_gain: float = 0.05
    ceilings: Mapping[str, float] = field(default_factory=dict)
    order: str = "first come"
    start_share: float = 0.5
    tuning: ClusterTuning = field(default_factory=ClusterTuning)

    @property
    def weigh(self) -> Weight:
        """The weight of jobs' gains."""
        if self.weight != REMAINING_TIME:
            return weight_of(self.weight)
        return remaining_time(self.tuning.dlrover_rm.rho, self.tuning.dlrover_rm.epsilon_s)

    def __post_init__(self) -> None:
        for find, name in ((method_of, self.method), (weight_of, self.weight), (order_of, self.order)):
            find(name)
        _check.at_least("min_gain", self.min_gain, 0)
        if not 0 < self.start_share <= 1:
            raise InvalidValueError(f"start_share must be above 0 and at most 1, got {self.start_share}")
        if self.method == "qore" and self.ceilings:
            raise InvalidValueError(
                "the method qore plans by deadlines and has no ceilings per owner; remove the ceilings, or "
                "use the method weighted"
            )
        for owner, money in self.ceilings.items():
            _check.above_zero(f"ceiling of {owner}", money)


def plan_cluster(
    offers: Sequence[JobOffer],
    room: Capacity,
    settings: BrainSettings,
    before: Mapping[str, ResourcePlan] = MappingProxyType({}),
) -> ClusterPlan:
    """Choose what each of some jobs may plan with.

    Parameters
    ----------
    offers
        Of different jobs; checked (`offer_columns.check`).
    room
        What these jobs hold now, and what is free.
    before
        The plan that each job was meant to have by the last round.
    """
    if not offers:
        return ClusterPlan({})
    plan = method_of(settings.method)(offers, room, settings, before)
    if settings.method not in METHODS:
        _check_plan(plan, offers, room, settings.method)
    return plan


def before_queue(offers: Sequence[JobOffer], room: Capacity, settings: BrainSettings) -> ClusterPlan | None:
    """Return what running jobs get of what is free though a job waits for it; None: nothing.

    By the method `qore` a running job that would be late grows first: its deadline is lost by waiting.
    """
    if settings.method != "qore" or not offers:
        return None
    plan = adjusted(offers, room, shrink=settings.shrink, late_only=True, loads=settings.tuning.qore)
    grows = any(plan.shares[o.job].plan.total_cpu > o.plan.total_cpu for o in offers)
    return plan if grows else None


def _by_deadline(
    offers: Sequence[JobOffer],
    room: Capacity,
    settings: BrainSettings,
    before: Mapping[str, ResourcePlan],
) -> ClusterPlan:
    del before  # a target is chosen anew each round: it leaves the targets by what it did
    return adjusted(offers, room, shrink=settings.shrink, loads=settings.tuning.qore)


def _by_selection(
    choose: Callable[..., Selection],
    offers: Sequence[JobOffer],
    room: Capacity,
    settings: BrainSettings,
    before: Mapping[str, ResourcePlan],
) -> ClusterPlan:
    """Choose one plan per job by what the plans are worth together."""
    columns = columns_of(offers, settings.ceilings)
    if _largest_fit(columns, room) and not settings.ceilings:
        return ClusterPlan({each.job: Share(each.plan, Quota()) for each in offers})
    try:
        selection = _selected(choose, columns, room, settings)
    except CapacityError as error:
        return unchanged(offers, note=f"no job can grow: {error.text}")
    last = _kept(columns, selection, before, settings) if before else None
    chosen = selection.chosen if last is None else last
    shown = replace(selection, chosen=chosen)
    return ClusterPlan(
        _shares(columns, shown, room),
        objective=_worth(columns, selection, chosen),
        bound=selection.bound,
        is_kept=last is not None,
    )


METHODS: Mapping[str, Method] = MappingProxyType(
    {
        "weighted": partial(_by_selection, select),
        "greedy": partial(_by_selection, literal),
        "qore": _by_deadline,
    }
)


def method_of(name: str) -> Method:
    """Return a method by its name, ours or one that an installed package adds.

    Raises
    ------
    InvalidValueError
        When there is none, with the nearest name, or the package that adds it is broken.
    """
    return extensions.find_function(extensions.BRAIN_METHODS, name, METHODS)


def _check_plan(plan: ClusterPlan, offers: Sequence[JobOffer], room: Capacity, method: str) -> None:
    """Refuse what a package's method must not return: other jobs, or plans that do not fit together."""
    jobs = {offer.job for offer in offers}
    if plan.shares.keys() != jobs:
        other = min(plan.shares.keys() ^ jobs)
        raise InvalidValueError(f"method {method} must return a share of each job and no other, see {other}")
    is_changed = any(plan.shares[offer.job].plan != offer.plan for offer in offers)
    needs = [need for share in plan.shares.values() for need in plan_needs(share.plan)]
    if is_changed and not fits(room, needs):
        raise InvalidValueError(
            f"method {method} must return plans whose nodes all find a place; they do not"
        )


def _selected(
    choose: Callable[..., Selection], columns: OfferColumns, room: Capacity, settings: BrainSettings
) -> Selection:
    """Return a choice whose nodes all find a place.

    Raises
    ------
    CapacityError
        When the running plans hold more than there is, or leave gaps in which nothing fits.
    """
    bids = columns.bids
    machines = _whole(columns, room)
    whole = np.array([*machines, *_money(columns, settings, len(machines))])
    present = np.zeros(len(whole)) if settings.shrink else bids.present.sum(axis=0)
    weight = _urgent_first(columns, settings.weigh)
    for cut in CUTS if settings.shrink else (*CUTS, 0.0):  # 0: only what frees room
        most = np.maximum(cut * whole, np.minimum(present, whole))
        selection = choose(bids, most, weight=weight, shrink=settings.shrink)
        if all_fit(columns.groups(selection.chosen), room):
            return selection
    raise CapacityError("no other plan fits into the gaps that running nodes leave on the machines")


def _money(columns: OfferColumns, settings: BrainSettings, n_resource: int) -> list[float]:
    """Return the ceilings in the order of the resources; what a team spends already is not taken away."""
    names = columns.bids.resources[n_resource:]
    present = columns.bids.present.sum(axis=0)[n_resource:]
    ceilings = [settings.ceilings[name.removeprefix("an hour's money of ")] for name in names]
    return [max(money, float(spent)) for money, spent in zip(ceilings, present, strict=True)]


def _urgent_first(columns: OfferColumns, weight: Weight) -> Weight:
    """Return a weight by which plans that meet a deadline which is missed now come before all others."""
    bids = columns.bids
    left_s = np.array([np.inf if o.deadline_left_s is None else o.deadline_left_s for o in columns.offers])
    own_s = bids.samples_left / np.array([o.samples_per_s for o in columns.offers])
    is_urgent = (own_s > left_s)[bids.job] & (bids.remaining_s <= left_s[bids.job])

    def weighed(of: Bids, capacity: Array) -> Array:
        usual = weight(of, capacity)
        return np.where(is_urgent, URGENT * usual.max(initial=0.0), usual)

    return weighed


def _largest_fit(columns: OfferColumns, room: Capacity) -> bool:
    """Whether the largest plans of all jobs fit together, by sums."""
    bids = columns.bids
    whole = _whole(columns, room)
    most = bids.present[:, : len(whole)].copy()
    np.maximum.at(most, bids.job, bids.demands[:, : len(whole)])
    return bool((most.sum(axis=0) <= whole).all())


def _whole(columns: OfferColumns, room: Capacity) -> Array:
    """Return what all machines have, in the order of the resources."""
    n_resource = sum(name in RESOURCES for name in columns.bids.resources)
    return np.array([room.total_cpu, room.total_memory_mib, room.total_gpu], dtype=np.float64)[:n_resource]


def _kept(
    columns: OfferColumns, selection: Selection, before: Mapping[str, ResourcePlan], settings: BrainSettings
) -> Index | None:
    """Return the last choice, where it is possible still and the new one is not clearly better; else None."""
    chosen = np.array([_place(columns, i, before.get(o.job)) for i, o in enumerate(columns.offers)])
    if (chosen < -1).any():
        return None
    bids = columns.bids
    index = bids.offsets[:-1] + chosen
    need = np.where((chosen < 0)[:, None], bids.present, bids.demands[np.maximum(index, 0)])
    if (need.sum(axis=0) > (selection.used + selection.free) * (1 + 1e-9)).any():
        return None
    last, new = _worth(columns, selection, chosen), _worth(columns, selection, selection.chosen)
    return chosen if new <= last + settings.min_gain * abs(last) else None


def _place(columns: OfferColumns, job: int, plan: ResourcePlan | None) -> int:
    """Return which candidate a plan is: -1 what runs, -2 none that is offered."""
    if plan is None:
        return -2
    offer = columns.offers[job]
    if plan == offer.plan:
        return -1
    first, last = columns.bids.offsets[job], columns.bids.offsets[job + 1]
    axes = np.array([plan.worker.count, plan.ps.count, plan.worker.cpu, plan.ps.cpu])
    same = np.flatnonzero((np.abs(columns.axes[first:last] - axes) < 1e-9).all(axis=1))
    return int(same[0]) if len(same) else -2


def _worth(columns: OfferColumns, selection: Selection, chosen: Index) -> float:
    index = columns.bids.offsets[:-1] + np.maximum(chosen, 0)
    safe = np.minimum(index, max(len(selection.values) - 1, 0))
    return float(selection.values[safe][chosen >= 0].sum()) if len(selection.values) else 0.0


def _shares(columns: OfferColumns, selection: Selection, room: Capacity) -> dict[str, Share]:
    plans = [columns.plan(i, int(own)) for i, own in enumerate(selection.chosen)]
    n_job = len(plans)
    spare_cpu = max(room.total_cpu - sum(plan.total_cpu for plan in plans), 0.0) / n_job
    spare_mib = max(room.total_memory_mib - sum(plan.total_memory_mib for plan in plans), 0) // n_job
    instead = _grown(columns, plans)
    return {
        offer.job: Share(plan, quota_of(plan, spare_cpu, spare_mib), _why(columns, selection, i, instead))
        for i, (offer, plan) in enumerate(zip(columns.offers, plans, strict=True))
    }


def _grown(columns: OfferColumns, plans: Sequence[ResourcePlan]) -> list[tuple[str, str]]:
    """Return which jobs are meant to grow, the largest growth first, in words."""
    more = [
        (plan.total_cpu - offer.plan.total_cpu, offer.job, plan)
        for offer, plan in zip(columns.offers, plans, strict=True)
    ]
    ranked = sorted((each for each in more if each[0] > 0), key=lambda each: (-each[0], each[1]))
    return [(job, f"{job} gets {cpu:g} more cores ({plan.short})") for cpu, job, plan in ranked]


def _why(columns: OfferColumns, selection: Selection, job: int, instead: Sequence[tuple[str, str]]) -> str:
    why = refusal(columns.bids, selection, job)
    if why is None:
        return ""
    others = [words for name, words in instead[: MOST_NAMED + 1] if name != columns.offers[job].job]
    return f"{why} {'; '.join(others[:MOST_NAMED])}." if others else why
