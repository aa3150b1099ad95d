"""Memory that a job's nodes need: derived from OOM kills and from forecasts.

A kill is certain evidence: the role needs more than it had, for the rest of the job. A forecast takes effect
where a role is judged to fill up, and is dropped when that is withdrawn. A need that the user has
rejected is not proposed again until it has grown by a fifth, or until a node was killed because of it.

What nodes hold at most (`memory.right_size`) is kept beyond a change of plan, as the end of the job stays the
same, until the next plan has been measured. It lowers a request only where nothing speaks against it: not
the size of batches that follows the number of workers, not a user who refused, not a kill of the last half
hour, and never below what an earlier kill has taught.

Whether a role fills up is judged with each forecast, those for views included (`memory.judgement`), and a
change of that is acted upon at once. How much memory it needs is forecast anew every half minute at first and
less often as a plan runs on (a tenth of its time, ten minutes at the most). Only a role whose memory is
judged to stay may get less, and never less than what was judged too little before: so the same memory cannot
be given and taken back in turn.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, inf
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.memory import after_oom_mib
from dlrover_nb.core.planner.protect import MemoryNeed
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from dlrover_nb.core.controller.measured.measurement import Measurement
    from dlrover_nb.core.controller.settings import ControllerSettings
    from dlrover_nb.core.memory import MemoryUse
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.bounds import Pins
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.views.events import NodeOutOfMemory
    from dlrover_nb.core.structs.views.snapshot import MemoryLine

HELPS = 1.2  # times the memory that a node had reached when killed: less would only delay the next kill
GROWN = 1.2  # times a need that was rejected
SHARE = 0.1  # of a plan's time until the next forecast
MAX_CHECK_S = 600.0
AFTER_KILL_S = 1800.0  # in which the memory of a killed node's role is not lowered


@dataclass(frozen=True, slots=True)
class _Kill:
    """Evidence of a kill about a role: `too_little_mib` is the largest insufficient memory."""

    node: str
    reached_mib: int
    too_little_mib: int
    at_s: float = -inf

    @property
    def need_mib(self) -> int:
        return after_oom_mib(self.too_little_mib, self.reached_mib)


class Protection:
    """Keeps the evidence on a job's need of memory.

    Parameters
    ----------
    settings
        Threshold and interval.
    measured
        Source of the forecasts.
    spec
        The job. A store that no plan changes is left out: its master gives it more memory after a kill.
    """

    def __init__(self, settings: ControllerSettings, measured: Measurement, spec: JobSpec) -> None:
        self._settings = settings
        keeps_store = spec.foreign is not None and spec.foreign.framework.keeps_store
        self._roles = (Role.WORKER,) if keeps_store else tuple(Role)
        self._measured = measured
        self._kills: dict[Role, _Kill] = {}
        self._declined: dict[Role, float] = {}
        self._forecast: dict[Role, MemoryNeed] = {}
        self._uses: dict[Role, MemoryUse] = {}
        self._kept: set[Role] = set()  # a user refused less memory
        self._short_mib: dict[Role, int] = {}  # what was judged to be too little
        self._forecast_s = -inf  # when the next forecast is due
        self._since_s = 0.0
        self._is_news = False

    def killed(self, event: NodeOutOfMemory, plan: ResourcePlan) -> None:
        """Record that a node of `plan` was killed for lack of memory."""
        earlier = self._kills.get(event.role)
        reached = max(ceil(event.memory_mib), earlier.reached_mib if earlier else 0)
        too_little = max(plan.role(event.role).memory_mib, reached, earlier.too_little_mib if earlier else 0)
        self._kills[event.role] = _Kill(event.node, reached, too_little, event.at_s)
        self._uses.pop(event.role, None)
        self._declined.pop(event.role, None)
        self.request_advice()

    def request_advice(self) -> None:
        """Make advice due: something relevant to memory has changed."""
        self._is_news = True

    def changed(self, at_s: float) -> None:
        """Record that another plan runs: forecasts restart."""
        self._forecast.clear()
        self._since_s, self._forecast_s = at_s, -inf
        self.request_advice()

    def declined(self, plan: ResourcePlan) -> None:
        """Record that the user rejected a plan that adds memory."""
        for role in Role:
            self._declined[role] = plan.role(role).memory_mib

    def keep(self, plan: ResourcePlan, refused: ResourcePlan) -> None:
        """Record that the user refused another plan: less memory than `plan` has is not proposed again."""
        self._kept |= {r for r in Role if refused.role(r).memory_mib < plan.role(r).memory_mib}

    def is_due(self, at_s: float) -> bool:
        """Whether advice on memory is due."""
        return self._is_news or at_s >= self._forecast_s

    def hasten(self, at_s: float) -> None:
        """Make a forecast due where other roles fill up, by the one that was just published, than before."""
        if self._measured.filling != self._forecast.keys():
            self._forecast_s = at_s

    def advised(self) -> None:
        """Record that advice on all evidence was given."""
        self._is_news = False

    def forecast(self, at_s: float) -> None:
        """Forecast anew, if that is due."""
        if at_s < self._forecast_s:
            return
        wait_s = max(self._settings.memory_check_s, SHARE * (at_s - self._since_s))
        self._forecast_s = at_s + min(wait_s, max(MAX_CHECK_S, self._settings.memory_check_s))
        lines = {line.role: line for line in self._measured.forecast_memory(at_s)}
        needed, before, self._is_news = dict(self._measured.memory_needs()), self._forecast, True
        for role in needed:
            self._short_mib[role] = max(self._short_mib.get(role, 0), lines[role].limit_mib)
            self._uses.pop(role, None)
        own = {
            role: MemoryNeed(role, mib, mib, _format_forecast(lines[role])) for role, mib in needed.items()
        }
        self._forecast = {r: n for r, n in (before | own).items() if r in self._measured.filling}

    def observe(self, at_s: float) -> None:
        """Forecast for a new analysis: what nodes need where that is due, and what they hold at most."""
        self.forecast(at_s)
        self._uses |= {use.role: use for use in self._measured.memory_uses()}

    def needs(self, plan: ResourcePlan) -> tuple[MemoryNeed, ...]:
        """Return the memory that nodes of a plan lack by all evidence, rejected needs left out."""
        needs = (self._need(role, plan.role(role).memory_mib) for role in self._roles)
        return tuple(need for need in needs if need and need.mib > GROWN * self._declined.get(need.role, 0.0))

    def floors(self, plan: ResourcePlan, pins: Pins) -> tuple[tuple[Role, int], ...]:
        """Return the memory per node that the search gives every plan, where it differs from `plan`."""
        given = {role: need.mib for role, need in self._forecast.items()}
        for role, kill in self._kills.items():
            own = plan.role(role).memory_mib
            least = own if own > kill.too_little_mib else kill.need_mib
            given[role] = max(given.get(role, own), least)
        given = {role: mib for role, mib in given.items() if role in self._roles}
        pinned = {Role.WORKER: pins.worker_memory_mib, Role.PS: pins.ps_memory_mib}
        given |= {role: mib for role, mib in pinned.items() if mib is not None}
        return tuple(given.items())

    def uses(self, plan: ResourcePlan, spec: JobSpec, pins: Pins, at_s: float) -> tuple[MemoryUse, ...]:
        """Return what nodes hold at most, of roles whose memory may be lowered, with the least of each."""
        pinned = {Role.WORKER: pins.worker_memory_mib, Role.PS: pins.ps_memory_mib}
        return tuple(
            replace(use, least_mib=max(use.least_mib, self._least(role, plan, spec, at_s)))
            for role, use in self._uses.items()
            if pinned[role] is None and role in self._roles
        )

    def _least(self, role: Role, plan: ResourcePlan, spec: JobSpec, at_s: float) -> int:
        """Return the memory below which a role must not go; all that it has, where that stays."""
        kill, own_mib = self._kills.get(role), plan.role(role).memory_mib
        follows = role is Role.WORKER and spec.shared_batch is not None
        is_sure = role in self._measured.staying
        was_killed = kill is not None and at_s < kill.at_s + AFTER_KILL_S
        if follows or role in self._kept or was_killed or not is_sure:
            return own_mib
        return max(kill.need_mib if kill is not None else 0, self._short_mib.get(role, 0))

    def least_mib(self, role: Role) -> int:
        """Return the memory that a node of a role had reached when killed; 0 where none was."""
        return self._kills[role].reached_mib if role in self._kills else 0

    def _need(self, role: Role, own_mib: int) -> MemoryNeed | None:
        kill = self._kills.get(role)
        if kill is None or own_mib > kill.too_little_mib:
            need = self._forecast.get(role)
            return need if need and need.mib > own_mib else None
        why = f"{kill.node} ran out of memory at {kill.reached_mib} MiB (its limit is {own_mib})"
        return MemoryNeed(role, kill.need_mib, int(HELPS * kill.reached_mib), why)


def _format_forecast(line: MemoryLine) -> str:
    """Describe the forecast of a role."""
    likely = (
        ""
        if line.oom_probability is None
        else f", with a {chance_words(line.oom_probability)} chance of running out before the end"
    )
    when = "" if line.full_in_s is None else f", {_format_wait(line.full_in_s)}"
    is_more = line.at_end_mib is not None and line.at_end_mib > line.limit_mib
    end = f"; by the end it would use {line.at_end_mib:,.0f} MiB" if is_more else ""
    return f"each {line.role} has {line.limit_mib} MiB{likely}{when}{end}"


def _format_wait(wait_s: float) -> str:
    return "within a minute" if wait_s < 60 else f"in about {wait_s / 60:.0f} min"
