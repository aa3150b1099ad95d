"""Each number of the answers anew, by another way: from plans, prices, the fit, the records and the journal.

Nothing here is taken from `core.why`. What is open is predicted again with the controller's analysis; what is
closed stands in the records of the history; times are those of the events that the controller heard.
"""

from __future__ import annotations

import math
import re
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.perf.terms import axes_of
from dlrover_nb.core.planner.finish_chance import chances
from dlrover_nb.core.planner.predictions.transitions import transition_s
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.core.structs.plan.resources import ResourcePlan, RolePlan
from dlrover_nb.core.structs.views.events import Decided, PlanApplied
from support.plans.simulated_life import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.decisions.query_answers import Explanation
    from dlrover_nb.core.structs.training.samples import ProfileSample
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from support.plans.simulated_life import Life

    Table = Mapping[str, Callable[[], float]]

_SHORT = re.compile(r"(\d+)w x ([\d.]+) \+ (\d+)p x ([\d.]+)")
ROLES, MEMORY = ("worker", "ps"), ("used", "limit", "full", "before", "after")
MEASURED = ("reached", "promised", "off", "n_window", "host", "host_then", "alike", "before")
CHANCE = 0.9  # of all bands, and wanted of a deadline


def plan_of(short: str, memory: ResourcePlan) -> ResourcePlan:
    """Return the plan of a label, with the memory of another plan."""
    match = _SHORT.fullmatch(short)
    assert match, short
    w, worker_cpu, p, ps_cpu = match.groups()
    return ResourcePlan(
        RolePlan(int(w), float(worker_cpu), memory.worker.memory_mib),
        RolePlan(int(p), float(ps_cpu), memory.ps.memory_mib),
    )


class Recount:
    """The values of the answers about one proposal of a job, or about its plan, by (question, name)."""

    def __init__(self, life: Life, explanation: Explanation, snapshot: JobSnapshot) -> None:
        self.life, self.e, self.s = life, explanation, snapshot
        self.p = next((p for p in snapshot.proposals if p.id == explanation.proposal), None)
        self.is_open = self.p is not None and self.p.status is ProposalStatus.PENDING
        self.analysis = life.queries.analysis
        decided = [e.decision for e in life.journal if isinstance(e, Decided)]
        self.decision = next((d for d in decided if self.p and d.proposal == self.p.id), None)
        if self.p and self.decision is None:  # by auto mode, which no journal has
            self.decision = next((d for d in snapshot.decisions if d.proposal == self.p.id), None)
        mine = self.decision
        self.undo = next((d for d in decided if mine and d.undoes == mine.id), None)

    @property
    def refusal(self):
        """The rejection that the present proposal came back from."""
        ids = [
            p.id
            for p in self.s.proposals
            if p.status is ProposalStatus.REJECTED and _axes(p.candidate.plan) == _axes(self.e.plan)
        ]
        return next(d for d in reversed(self.s.decisions) if d.proposal in ids and d.verdict == "reject")

    @property
    def refused(self):
        return next(p for p in self.s.proposals if p.id == self.refusal.proposal).candidate

    # predictions

    def predicted(self, plan: ResourcePlan) -> Prediction:
        assert self.analysis is not None
        return self.analysis.predict(plan)

    @property
    def own(self) -> Prediction:
        if self.p is not None and not self.is_open:
            return self.p.candidate.prediction
        return self.predicted(self.e.plan)

    @property
    def present(self) -> Prediction:
        if self.p is not None and not self.is_open:
            return self.p.baseline.prediction
        return self.predicted(self.now_plan)

    @property
    def now_plan(self) -> ResourcePlan:
        if self.p is not None and not self.is_open:
            return self.p.baseline.plan
        assert self.analysis is not None
        return self.analysis.situation.plan

    def pause_s(self, plan: ResourcePlan) -> float:
        assert self.analysis is not None
        return transition_s(plan, self.analysis.situation)

    def finish_s(self, plan: ResourcePlan) -> float:
        assert self.analysis is not None
        speed = self.predicted(plan).samples_per_s
        return self.analysis.situation.n_sample_left / speed + self.pause_s(plan)

    def in_time(self, plan: ResourcePlan) -> float:
        assert self.analysis is not None
        due = self.analysis.situation.due
        assert due is not None
        return float(chances(self.predicted(plan), self.pause_s(plan), due))

    @property
    def samples(self) -> tuple[ProfileSample, ...]:
        """The windows behind the newest analysis; a snapshot has the newest of them alone."""
        assert self.analysis is not None
        return self.analysis.situation.samples

    # money

    def cost(self, plan: ResourcePlan) -> float:
        prices = self.s.spec.prices
        assert prices.cpu_hour is not None
        assert prices.gib_hour is not None
        roles = (plan.worker, plan.ps)
        return sum(r.count * (r.cpu * prices.cpu_hour + r.memory_mib / 1024 * prices.gib_hour) for r in roles)

    def dearer(self, plan: ResourcePlan, other: ResourcePlan) -> float:
        if not self.s.spec.prices.cpu_hour:
            cores = [
                sum(r.count * (r.cpu + r.memory_mib / 8192) for r in (p.worker, p.ps)) for p in (plan, other)
            ]
            return cores[0] - cores[1]
        return self.cost(plan) - self.cost(other)

    # parts of an iteration

    def parts_s(self) -> dict[str, tuple[float, float]]:
        """Return the seconds of each part before and after: of a closed proposal as recorded."""
        if self.p is not None and not self.is_open:
            after = {part.term: part.seconds for part in self.p.candidate.breakdown}
            return {b.term: (b.seconds, after.get(b.term, math.nan)) for b in self.p.baseline.breakdown}
        assert self.analysis is not None
        model, m = self.analysis.model, float(self.s.spec.batch_size)
        plans = [self.now_plan, self.e.plan]
        before, after = model.term_seconds(axes_of(plans), m)
        iter_s = [p.worker.count * m / self.predicted(p).without_host.samples_per_s for p in plans]
        stretch = iter_s[0] / before.sum()
        parts = {t: (b * stretch, a * stretch) for t, b, a in zip(model.terms_, before, after, strict=True)}
        return {**parts, "rest": (0.0, iter_s[1] - stretch * after.sum())}

    def cut(self) -> tuple[float, float]:
        """Return the seconds before and after of the known part that becomes shorter most."""
        fit = self.s.fit
        assert fit is not None
        known = {c.term for c in fit.coefficients if c.identified}
        return max(
            (pair for term, pair in self.parts_s().items() if term in known), key=lambda x: x[0] - x[1]
        )

    def iteration_s(self) -> float:
        return self.now_plan.worker.count * self.s.spec.batch_size / self.present.samples_per_s

    # records

    @property
    def outcome(self):
        if self.p is None:
            return self.s.outcomes[-1]
        return next(o for o in reversed(self.s.outcomes) if self.decision and o.decision == self.decision.id)

    @property
    def judged(self) -> list[bool]:
        found = []
        for o in self.s.outcomes:
            if o.predicted is not None:
                speed = o.measured_samples_per_s / (1 - o.host_share)
                found.append(o.predicted.low <= speed * o.predicted.host <= o.predicted.high)
        return found

    def ago(self, at_s: float) -> float:
        return self.s.at_s - at_s

    def applied_ago(self) -> float:
        at_s = self.outcome.applied_at_s
        assert any(isinstance(e, PlanApplied) and e.at_s == at_s for e in self.life.journal)
        return self.ago(at_s)

    # the table

    def value(self, question: str, name: str, quotes: dict[str, str]) -> float:
        """Return one value anew."""
        tables: dict[str, Callable[[], Table]] = {
            "why": self.reasons,
            "sure": self.certainty,
            "when": self.moments,
            "how": lambda: {"pause": self.applied_pause, "n_plan": self.n_plan},
            "why-not": lambda: self.rival(quotes["rival"]),
            "what-if": lambda: {**self.step("fastest", quotes), **self.step("smallest", quotes)},
            "otherwise": self.break_even,
            "before": self.course,
        }
        return tables[question]()[name]()

    def reasons(self) -> Table:
        own, now = self.own, self.present
        return {
            "speed": lambda: own.samples_per_s,
            "now": lambda: now.samples_per_s,
            "low": lambda: own.low,
            "high": lambda: own.high,
            "gain": lambda: own.samples_per_s / now.samples_per_s - 1,
            "more": lambda: self.dearer(self.e.plan, self.now_plan),
            "share": lambda: self.cut()[0] / self.iteration_s(),
            "part_before": lambda: self.cut()[0],
            "part_after": lambda: self.cut()[1],
            "rest": lambda: abs(self.parts_s()["rest"][1]),
            "in_time": lambda: self.chance(self.e.plan, "candidate"),
            "in_time_now": lambda: self.chance(self.now_plan, "baseline"),
            "least_gain": lambda: SETTINGS.planner.min_gain,
            "least_saving": lambda: SETTINGS.planner.min_saving,
            "host": self.host,
            "proposed_speed": lambda: self.p.candidate.prediction.samples_per_s,
            "refused": lambda: self.ago(self.refusal.at_s),
            "then": lambda: self.refused.prediction.without_host.samples_per_s,
            "again": lambda: self.p.candidate.prediction.without_host.samples_per_s,
            "n_more": lambda: self.p.returned.n_plan - self.p.returned.refusal.n_plan,
            **{f"{role}_{name}": partial(self.memory, role, name) for role in ROLES for name in MEMORY},
        }

    def chance(self, plan: ResourcePlan, side: str) -> float:
        if self.is_open:
            return self.in_time(plan)
        chance = getattr(self.p, side).in_time
        assert chance is not None
        return chance

    def host(self) -> float:
        load = self.s.host
        assert load is not None
        assert 0.3 < load.share < 0.7  # other work takes a half in these worlds, with noise
        return load.share

    def memory(self, role: str, name: str) -> float:
        assert self.p is not None
        if name in {"before", "after"}:
            plan = (self.p.baseline if name == "before" else self.p.candidate).plan
            return float((plan.worker if role == "worker" else plan.ps).memory_mib)
        line = next(line for line in self.s.memory if line.role == role)
        if name == "used":
            assert line.now_mib <= 1.05 * max(
                n.last.memory_mib for n in self.s.nodes if n.role == role and n.last is not None
            )
            return line.now_mib
        if name == "limit":
            return float((self.s.target.worker if role == "worker" else self.s.target.ps).memory_mib)
        assert line.oom_probability is not None
        return line.oom_probability

    def certainty(self) -> Table:
        return {
            "chance": lambda: CHANCE,
            "low": lambda: self.own.low,
            "high": lambda: self.own.high,
            "n_window": lambda: sum(sample.n_window for sample in self.samples),
            "n_plan": lambda: len({_axes(sample.plan) for sample in self.samples}),
            "n_right": lambda: sum(self.judged),
            "n_judged": lambda: len(self.judged),
            "host": lambda: 1 - self.own.host,
            "tried": self.tried,
        }

    def tried(self) -> float:
        outcomes = [o for o in self.s.outcomes if _axes(o.plan) == _axes(self.e.plan)]
        if outcomes:
            return outcomes[-1].measured_samples_per_s
        windows = [w for w in self.s.samples if _axes(w.plan) == _axes(self.e.plan)]
        weights = [w.n_window for w in windows]
        return float(np.exp(np.average(np.log([w.samples_per_s for w in windows]), weights=weights)))

    def moments(self) -> Table:
        s, p = self.s, self.p
        applied_s = max((e.at_s for e in self.life.journal if isinstance(e, PlanApplied)), default=0.0)
        return {
            "age": lambda: self.ago(applied_s),
            "length": lambda: s.ended_at_s - applied_s,
            "proposed": lambda: self.ago(p.created_at_s),
            "answered": lambda: self.ago(self.decision.at_s),
            "closed": lambda: self.ago(p.closed_at_s),
            "applied": self.applied_ago,
            "undone": lambda: self.ago(self.undo.at_s),
            "finish": lambda: self.finish_s(self.e.plan),
            "left": self.left_s,
        }

    def left_s(self) -> float:
        left_s = self.analysis.situation.deadline_left_s
        exact_s = self.s.started_at_s + self.life.spec.deadline_s - self.s.at_s
        assert abs(exact_s - left_s) < SETTINGS.refit_s + 60  # as of the newest analysis
        return abs(left_s)

    def n_plan(self) -> float:
        assert self.analysis.grid.n_plan >= self.analysis.n_plan
        return self.analysis.n_plan

    def applied_pause(self) -> float:
        found = [o for o in self.s.outcomes if self.decision and o.decision == self.decision.id]
        if found:
            at_s = found[-1].applied_at_s
            return next(e.pause_s for e in self.life.journal if isinstance(e, PlanApplied) and e.at_s == at_s)
        return self.pause_s(self.e.plan) if self.is_open else self.p.candidate.transition_s

    def rival(self, label: str) -> Table:
        plan = plan_of(label, self.e.runner_up.plan)
        now = self.predicted(self.analysis.situation.plan)
        p = self.predicted(plan)
        return {
            "speed": lambda: p.samples_per_s,
            "gain": lambda: p.samples_per_s / self.own.samples_per_s - 1,
            "more": lambda: self.dearer(plan, self.e.plan),
            "price": lambda: self.cost(plan),
            "budget": lambda: self.life.spec.budget_per_hour,
            "in_time": lambda: self.in_time(plan),
            "wanted": lambda: CHANCE,
            "pause": lambda: self.pause_s(plan),
            "low": lambda: p.low,
            "least": lambda: (1 + SETTINGS.planner.min_gain) * now.samples_per_s,
        }

    def step(self, name: str, quotes: dict[str, str]) -> Table:
        """Recompute a step from the plan that is explained, by the words for it."""
        if name not in quotes:
            return {}
        (plan,) = (m.weighed.plan for m in self.e.marginals if m.what == quotes[name])
        base = self.predicted(self.e.plan).samples_per_s
        return {
            f"{name}_speed": lambda: self.predicted(plan).samples_per_s - base,
            f"{name}_cost": lambda: self.dearer(plan, self.e.plan),
        }

    def break_even(self) -> Table:
        flip = self.e.flip
        assert flip.at != flip.now
        if "price of a core" in flip.quantity:
            assert flip.now == self.s.spec.prices.cpu_hour
        return {"at": lambda: flip.at, "now": lambda: flip.now}

    def course(self) -> Table:
        own = {name: partial(self.measured, name, is_last=False) for name in MEASURED}
        return {**own, **{f"last_{name}": partial(self.measured, name, is_last=True) for name in MEASURED}}

    def measured(self, name: str, *, is_last: bool) -> float:
        o = self.s.outcomes[-1] if is_last else self.outcome
        alike = o.measured_samples_per_s / (1 - o.host_share) * o.predicted.host
        return {
            "reached": o.measured_samples_per_s,
            "promised": o.predicted.samples_per_s,
            "off": alike / o.predicted.samples_per_s - 1,
            "alike": alike,
            "host_then": 1 - o.predicted.host,
            "n_window": o.n_sample,
            "host": o.host_share,
            "before": o.before_samples_per_s,
        }[name]


def _axes(plan: ResourcePlan) -> tuple[int, float, int, float]:
    return plan.worker.count, plan.worker.cpu, plan.ps.count, plan.ps.cpu


def known_words(explanation: Explanation, snapshot: JobSnapshot) -> set[str]:
    """Return all that an answer may quote: names, plans, changes in words, and what people wrote."""
    s, e = snapshot, explanation
    plans = {e.plan, s.target, *(sample.plan for sample in s.samples), *(o.plan for o in s.outcomes)}
    plans |= {c.plan for p in s.proposals for c in (p.candidate, p.baseline)}
    plans |= {e.runner_up.plan} if e.runner_up else set()
    plans |= {e.flip.plan} if e.flip else set()
    plans |= {d.plan for d in s.decisions if d.plan}
    words = {plan.short for plan in plans} | {m.what for m in e.marginals}
    words |= {_changed(p.baseline.plan, p.candidate.plan) for p in s.proposals}
    words |= {text for p in s.proposals for text in (p.id, str(p.status), p.note)}
    words |= {text for d in s.decisions for text in (d.id, d.by, d.why, f"{d.id}, {d.words}")}
    words |= {*s.memory_needs, s.spec.policy, str(s.phase)} | ({e.flip.quantity} if e.flip else set())
    return words | ({s.front.why_empty} if s.front else set())


def _changed(before: ResourcePlan, after: ResourcePlan) -> str:
    """Say a change as a person would: nodes, then cores, then memory of each role."""
    parts = _parts("worker", before.worker, after.worker, "s") + _parts("PS", before.ps, after.ps, "")
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def _parts(name: str, a: RolePlan, b: RolePlan, plural: str) -> list[str]:
    n = b.count - a.count
    words = [f"{abs(n)} {'more' if n > 0 else 'fewer'} {name}{plural * (abs(n) > 1)}"] if n else []
    words += [f"{b.cpu:g} instead of {a.cpu:g} cpu per {name}"] if a.cpu != b.cpu else []
    mib = f"{b.memory_mib} instead of {a.memory_mib} MiB per {name}"
    return [*words, *([mib] if a.memory_mib != b.memory_mib else [])]
