"""Small views of single records: the output of a cell that ends with a plan, a front or a forecast.

IPython's formatters call them, so that a record of the core, taken from a snapshot, is displayed and saved,
while the core does not depend on notebooks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Paragraph, StaticChart, Table, View
from dlrover_nb.widgets.charts import curve, front
from dlrover_nb.widgets.jobs.plans import change_facts, decision_words, diff_table, fit_tables, outcomes_table
from dlrover_nb.widgets.jobs.status import memory_table, status_view
from dlrover_nb.widgets.jobs.why import candidate_facts
from dlrover_nb.widgets.svg import svg_drawing
from dlrover_nb.widgets.svg.marks import Band, Line, Orientation, Plot, Rule
from dlrover_nb.widgets.svg.palette import INK, PS_COLOR, WORKER_COLOR

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Candidate, ParetoFront
    from dlrover_nb.core.structs.decisions.decisions import Decision, Outcome, Proposal
    from dlrover_nb.core.structs.views.fit import Curve, FitReport
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, MemoryLine

_NO_CURRENCY = units.Currency()  # unknown for a single candidate


def plan_view(plan: ResourcePlan) -> View:
    """Return a plan as a table."""
    rows = (*(_role_row(plan, role) for role in Role), _total_row(plan))
    head = ("role", "nodes", "cores each", "memory each", "cores", "memory")
    return View(f"Plan {plan.short}", (Table("Nodes of the plan", head, rows),))


def _role_row(plan: ResourcePlan, role: Role) -> tuple[str, ...]:
    part = plan.role(role)
    return (
        "workers" if role is Role.WORKER else "parameter servers",
        f"{part.count}",
        f"{part.cpu:g}",
        units.memory(part.memory_mib),
        f"{part.total_cpu:g}",
        units.memory(part.total_memory_mib),
    )


def _total_row(plan: ResourcePlan) -> tuple[str, ...]:
    n_node = plan.worker.count + plan.ps.count
    return (
        "in all",
        f"{n_node}",
        units.MISSING,
        units.MISSING,
        f"{plan.total_cpu:g}",
        units.memory(plan.total_memory_mib),
    )


def candidate_view(candidate: Candidate) -> View:
    """Return a plan with its predicted throughput and cost.

    The parts of its iteration are left out: only the fit tells which of them the data determine.
    """
    facts = (*candidate_facts(candidate, _NO_CURRENCY, when="predicted"), ("change", str(candidate.scale)))
    return View(f"Candidate {candidate.plan.short}", (Facts(facts),))


def front_view(pareto: ParetoFront) -> View:
    """Return a front as chart and table."""
    data = front.of_front(pareto)
    empty = (Paragraph(f"No other plan is possible: {pareto.why_empty}."),) if pareto.why_empty else ()
    title = f"Pareto front: {len(data.front)} of {pareto.n_plan:,} plans"
    return View(title, (*empty, StaticChart(svg_drawing.draw(front.marks(data)), front.data_table(data))))


def curve_view(fitted: Curve) -> View:
    """Return the fitted curve along one axis."""
    data = curve.axis_columns(fitted)
    name = curve.AXIS_NAMES.get(data.axis, data.axis)
    chart = StaticChart(svg_drawing.draw_panel(curve.plot(data)).svg, curve.data_table((data,)))
    return View(f"Throughput along {name}", (chart,))


def forecast_view(line: MemoryLine) -> View:
    """Return the memory forecast of a role."""
    blocks: tuple[Block, ...] = (memory_table((line,)),)
    if line.fan:
        blocks = (_fan_chart(line), *blocks)
    return View(f"Memory forecast of a {line.role}", blocks)


def _fan_chart(line: MemoryLine) -> StaticChart:
    t_s = [p.in_s for p in line.fan]
    low, mid, high = ([getattr(p, f"{name}_mib") for p in line.fan] for name in ("low", "mid", "high"))
    limit = f"limit: {units.memory(line.limit_mib)}"
    color = PS_COLOR if line.role is Role.PS else WORKER_COLOR
    layers = (
        Band(t_s, low, high, color, "90 % band"),
        Line(t_s, mid, color, "forecast", "1 4"),
        Rule(line.limit_mib, limit, Orientation.HORIZONTAL, INK, "8 4"),
    )
    words = f"Memory of the largest {line.role} from now to the end of the job; {limit}."
    plot = Plot("Memory from now to the end", words, "from now", "MiB", layers, x_is_time=True, height=250)
    step = max(1, len(line.fan) // 8)
    points = [*line.fan[:-1:step], line.fan[-1]]
    rows = tuple(
        (units.elapsed(p.in_s), units.memory(p.mid_mib), units.memory(p.low_mib), units.memory(p.high_mib))
        for p in points
    )
    return StaticChart(
        svg_drawing.draw_panel(plot).svg,
        Table("Memory ahead", ("in (m:ss)", "forecast", "5 %", "95 %"), rows),
    )


def decision_view(decision: Decision) -> View:
    """Return what was decided, by whom and why."""
    facts = (
        ("what", decision_words(decision)),
        ("by", f"{decision.by}, {units.clock(decision.at_s)}"),
        ("why", decision.why or units.MISSING),
    )
    return View(f"Decision {decision.id}".strip(), (Facts(facts),))


def outcome_view(outcome: Outcome) -> View:
    """Return how an applied plan turned out."""
    return View(f"Outcome of decision {outcome.decision}", (outcomes_table((outcome,)),))


def fit_view(fit: FitReport) -> View:
    """Return a fitted model in numbers."""
    return View("Fitted resource-performance model", fit_tables(fit))


def proposal_view(proposal: Proposal) -> View:
    """Return a proposal, open or closed."""
    note = f" ({proposal.note})" if proposal.note else ""
    blocks = (
        Paragraph(proposal.why),
        Facts((("status", f"{proposal.status}{note}"), *change_facts(proposal, _NO_CURRENCY))),
        diff_table(proposal),
    )
    return View(f"Proposal {proposal.id} of {proposal.job}: {proposal.kind.words}", blocks)


def snapshot_view(snapshot: JobSnapshot) -> View:
    """Return the state of a job without its telemetry."""
    return status_view(snapshot, None)
