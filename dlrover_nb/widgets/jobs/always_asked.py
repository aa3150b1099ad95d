"""What is always asked of a job beside its sentence: its host, memory, cost, and how its last change did.

One line below the first chart, the same facts in every view.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import signed_percent
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import moves, units
from dlrover_nb.widgets.blocks import Paragraph, escape
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.oom import full_words

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.decisions import Outcome
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot


def always_asked(snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    """Return the facts that are known, each with its name."""
    facts = (
        ("Host", _host(snapshot)),
        ("Memory", _memory(snapshot)),
        ("Cost", _cost(snapshot)),
        ("Last change", _last_change(snapshot)),
    )
    return tuple((name, words) for name, words in facts if words)


def always_asked_line(snapshot: JobSnapshot) -> Paragraph:
    """Return the facts as one line of a saved view, or of a terminal."""
    return Paragraph(" · ".join(f"{name}: {words}" for name, words in always_asked(snapshot)))


def always_asked_html(snapshot: JobSnapshot) -> str:
    """Return the facts as one line, which wraps between them."""
    spans = "".join(
        f"<span>{escape(name)}: <strong>{escape(words)}</strong></span>"
        for name, words in always_asked(snapshot)
    )
    return f'<div style="display:flex;flex-wrap:wrap;gap:2px 24px;margin:4px 0">{spans}</div>'


def _host(snapshot: JobSnapshot) -> str:
    """Return what its hosts give of the cores that it could use."""
    host = snapshot.host
    if host is None or snapshot.phase.is_final or not host.wanted_cores:
        return ""
    return f"gives {host.given_cores:.2g} of {moves.cores(float(f'{host.wanted_cores:.2g}'))}"


def _memory(snapshot: JobSnapshot) -> str:
    """Return how full the fullest role is, and when it will be full."""
    if snapshot.phase.is_final or not snapshot.memory:
        return ""
    fullest = max(snapshot.memory, key=lambda line: line.now_mib / line.limit_mib)
    name = "PS" if fullest.role is Role.PS else str(fullest.role)
    return f"{units.percent(fullest.now_mib / fullest.limit_mib)} of a {name}, {full_words(fullest)}"


def _cost(snapshot: JobSnapshot) -> str:
    """Return what an hour costs, and what was spent where that is counted."""
    prices, budget = snapshot.spec.prices, snapshot.budget
    currency = units.Currency(snapshot.front.currency if snapshot.front else prices.currency, prices.assumed)
    spent = "" if budget is None else f"{units.money(budget.spent, currency)} so far"
    an_hour = "" if snapshot.phase.is_final else units.money(_per_hour(snapshot), currency, per="h")
    words = ", ".join(filter(None, (an_hour, spent)))
    is_said = "assumed" in headline(snapshot).detail  # once in a view
    return f"{words}{currency.note}" if words and not is_said and words != units.PRICE_UNKNOWN else words


def _per_hour(snapshot: JobSnapshot) -> float | None:
    """Return the price of the plan that runs, of all nodes where the planner has counted them."""
    plan = snapshot.ran or snapshot.target
    if snapshot.front is not None and snapshot.front.current.plan == plan:
        return snapshot.front.current.cost_per_hour
    return snapshot.spec.prices.per_hour(plan.total_cpu, plan.total_memory_mib, plan.total_gpu)


def _last_change(snapshot: JobSnapshot) -> str:
    """Return which plan was set last, and how it turned out."""
    if snapshot.outcomes:
        outcome = snapshot.outcomes[-1]
        pause = f", paused {units.duration(outcome.pause_s)}" if outcome.pause_s else ""
        return f"to {outcome.plan.short}: {_turned_out(outcome)}{pause}"
    if len(snapshot.markers) > 1:
        last = snapshot.markers[-1]
        return f"to {last.plan.short}, {units.duration(max(snapshot.at_s - last.at_s, 0.0))} ago"
    return ""


def _turned_out(outcome: Outcome) -> str:
    """Return measured over predicted speed in words."""
    if outcome.predicted is None:
        return units.rate(outcome.measured_samples_per_s)
    more = outcome.comparable_samples_per_s / outcome.predicted.samples_per_s - 1
    side = "slower than" if more < 0 else "faster than"
    return f"{'as' if outcome.inside_band else side} predicted ({signed_percent(more)})"
