"""Whether mode, pins and budget of a job can become others: the rule of its controller and of its clients.

The controller refuses a decision that cannot be. One that waits for a person is checked when it is asked for
too, from the snapshot, so that no person is asked to approve what the controller would refuse. Each has the
same facts at hand, so the rule stands once, here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, StaleDecisionError
from dlrover_nb.core.structs.decisions.decisions import Decision, Verdict
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.plan.bounds import Pins, PlanBounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class Settings:
    """What a job is set to now.

    Parameters
    ----------
    job
        Its name.
    budget_total, spent
        Its limit (None: it has none), and the money of it that is spent.
    ending
        Why it is being stopped, as its budget is spent; empty: it is not.
    """

    job: str
    mode: Mode
    pins: Pins
    target: ResourcePlan
    bounds: PlanBounds
    prices: PriceTable
    budget_total: float | None = None
    spent: float = 0.0
    ending: str = ""


def check_setting(decision: Decision, now: Settings, check_room: Callable[[ResourcePlan], None]) -> None:
    """Refuse a decision on mode, pins or budget that is incomplete or changes nothing; others pass.

    Parameters
    ----------
    check_room
        Raises `CapacityError` for a plan that does not fit.

    Raises
    ------
    InvalidValueError
        When something is missing, or nothing would change.
    StaleDecisionError
        When the budget of a job that is being stopped would change.
    CapacityError
        When no plan with these pins fits.
    """
    match decision.verdict:
        case Verdict.MODE:
            _check_mode(decision.mode, now)
        case Verdict.PIN:
            _check_pins(decision.pins, now, check_room)
        case Verdict.BUDGET:
            _check_budget(decision.budget_total, now)
        case _:
            pass  # no setting, and checked as what it is


def _check_mode(mode: Mode | None, now: Settings) -> None:
    if mode is None:
        raise InvalidValueError(
            f"a decision on the mode must name one of {', '.join(Mode)}, got none; name the mode"
        )
    if mode is now.mode:
        raise InvalidValueError(f"job {now.job} is already in {now.mode} mode; choose another one")


def _check_budget(limit: float | None, now: Settings) -> None:
    if now.ending:
        raise StaleDecisionError(
            f"job {now.job} must be running for another budget, but it is being stopped: {now.ending}"
        )
    if limit == now.budget_total:
        already = "no limit" if limit is None else f"{limit:,.6g} {now.prices.currency}"
        raise InvalidValueError(f"job {now.job} already has the total budget {already}; set another one")
    if limit is None:
        return
    if now.prices.per_hour(1.0, 1.0, now.target.total_gpu) is None:
        gpu_hour = " and prices.gpu_hour" if now.target.total_gpu else ""
        raise InvalidValueError(
            f"a total budget needs all prices of job {now.job}, and one is unknown; submit it with "
            f"prices.cpu_hour, prices.gib_hour{gpu_hour}"
        )
    if not (math.isfinite(limit) and limit > now.spent):
        raise InvalidValueError(
            f"budget_total must be more than job {now.job} has spent, {now.spent:,.4g} "
            f"{now.prices.currency}, got {limit:,.6g}; set a higher one, or stop the job"
        )


def _check_pins(pins: Pins | None, now: Settings, check_room: Callable[[ResourcePlan], None]) -> None:
    if pins is None:
        raise InvalidValueError("a decision on pins must name them, got none; say what is fixed from now on")
    if pins == now.pins:
        raise InvalidValueError(f"job {now.job} already has {pins} pinned; name other pins")
    if now.bounds.open:
        return  # which follow from the cluster: nothing is known of the smallest plan
    bounds = now.bounds  # if the smallest plan does not fit with the pins, none does
    smallest = Pins(workers=1, ps=1, worker_cpu=bounds.worker_cpus[0], ps_cpu=bounds.ps_cpus[0])
    check_room(pins.applied(smallest.applied(now.target)))
