"""Past runs side by side: their plans and for how long, what that cost, and where their jobs differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec

from dlrover_nb.core import pricing

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.resources import ResourcePlan


@dataclass(frozen=True, slots=True)
class PlanSpan:
    """A plan of a run and when it began to run; the first one begins with the run."""

    at_s: float
    plan: ResourcePlan


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of the job file that is not the same in all runs, with its value in each."""

    key: str
    values: tuple[str, ...]


def plan_spans(history: RunHistory) -> tuple[PlanSpan, ...]:
    """Return the plans of a run, as far as there is evidence that they ran, oldest first.

    Evidence is a measured outcome, or a proposal that was applied.
    """
    given = {d.proposal: d.plan for d in history.decisions if d.proposal and d.plan}
    starts = [(o.applied_at_s, o.plan) for o in history.outcomes]
    starts += [
        (p.closed_at_s or p.created_at_s, given.get(p.id, p.candidate.plan))
        for p in history.proposals
        if p.status == "applied"
    ]
    spans = [PlanSpan(history.run.started_at_s, history.run.spec.plan)]
    for at_s, plan in sorted(starts, key=lambda each: each[0]):
        if plan != spans[-1].plan:
            spans.append(PlanSpan(at_s, plan))
    return tuple(spans)


def end_s(history: RunHistory) -> float:
    """Return when a run ended; of one that did not, the time up to which it is known."""
    run = history.run
    last_s = max((row.at_s for row in history.series), default=run.started_at_s)
    return last_s if run.ended_at_s is None else run.ended_at_s


def cost(history: RunHistory) -> float | None:
    """Return the money that the plans of a run cost; None where a price is unknown."""
    spans, last_s, total = plan_spans(history), end_s(history), 0.0
    for span, after in pairwise((*spans, None)):
        assert span is not None
        price = pricing.cost_per_hour(span.plan, history.run.spec.prices)
        if price is None:
            return None
        until_s = last_s if after is None else after.at_s
        total += price * max(0.0, until_s - span.at_s) / 3600
    return total


def n_sample(history: RunHistory) -> float:
    """Return the samples that were trained, as far as the series tells."""
    return sum(row.samples_per_s * row.span_s for row in history.series)


def differences(specs: Sequence[JobSpec]) -> tuple[Difference, ...]:
    """Return what differs between jobs, by the keys of the job file; names and owners are no difference."""
    flat = [dict(_flat(msgspec.to_builtins(spec))) for spec in specs]
    keys = dict.fromkeys(key for each in flat for key in each)
    rows = (Difference(key, tuple(each.get(key, "-") for each in flat)) for key in keys)
    return tuple(each for each in rows if len(set(each.values)) > 1 and each.key not in {"name", "owner"})


def _flat(value: object, key: str = "") -> Iterator[tuple[str, str]]:
    match value:
        case dict() if value:
            for name, each in value.items():
                yield from _flat(each, f"{key}.{name}" if key else str(name))
        case list() | tuple() if value:
            for i, each in enumerate(value):
                yield from _flat(each, f"{key}[{i}]")
        case _:
            yield key, "-" if value is None or value in ((), [], {}, "") else str(value)
