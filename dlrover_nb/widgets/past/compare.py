"""Past runs side by side: facts, throughput in one chart, plans, actions, outcomes, differences of jobs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.core.client.past.comparison import cost, differences, end_s, n_sample, plan_spans
from dlrover_nb.core.history.runs.prediction_scores import score
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Paragraph, StaticChart, Table, View
from dlrover_nb.widgets.mitigations import status_words
from dlrover_nb.widgets.past.history import N_TWIN_ROW, ended_words, series_line
from dlrover_nb.widgets.series import few
from dlrover_nb.widgets.svg.marks import Line, Plot
from dlrover_nb.widgets.svg.palette import CYCLE, DASHES
from dlrover_nb.widgets.svg.svg_drawing import draw_panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.structs.job.job import JobSpec


def compare_view(histories: Sequence[RunHistory]) -> View:
    """Return two runs or more, a column or a line for each."""
    names = tuple(history.run.run for history in histories)
    blocks: list[Block] = [
        _facts(histories, names),
        speeds_chart(histories),
        _plans(histories),
        *_actions(histories),
        _outcomes(histories),
    ]
    blocks.append(differing([history.run.spec for history in histories], names))
    return View(f"{units.counted(len(histories), 'run')} compared", tuple(blocks))


def differing(specs: Sequence[JobSpec], names: Sequence[str]) -> Block:
    """Return where jobs differ by their files, or that they do not."""
    rows = tuple((each.key, *each.values) for each in differences(specs))
    if not rows:
        return Paragraph("The jobs differ only in their names and owners.")
    return Table("Where the jobs differ", ("key of the job file", *names), rows)


def _facts(histories: Sequence[RunHistory], names: tuple[str, ...]) -> Table:
    columns = [_column(history) for history in histories]
    rows = tuple((key, *(column[key] for column in columns)) for key in columns[0])
    return Table("Side by side", ("", *names), rows)


def _column(history: RunHistory) -> dict[str, str]:
    run, predicted = history.run, score(history.outcomes)
    took_s, trained = end_s(history) - run.started_at_s, n_sample(history)
    prices = run.spec.prices
    money = units.Currency(prices.currency, prices.assumed)
    return {
        "ended as": ended_words(run),
        "owner": run.owner or units.MISSING,
        "model": run.spec.model.name,
        "took": units.unbroken(units.duration(took_s)),
        "samples trained": units.number(trained, 4),
        "mean throughput": units.rate(trained / took_s if took_s > 0 else None),
        "cost": f"{units.money(cost(history), money)}{money.note}",
        "plan at first": run.spec.plan.short,
        "plan at the end": plan_spans(history)[-1].plan.short,
        "proposals and decisions": f"{len(history.proposals)} and {len(history.decisions)}",
        "actions applied and failed": _applied_and_failed(history),
        "predictions inside their band": units.percent(predicted.inside),
        "median error of predictions": units.percent(predicted.median_error, 1),
    }


def _applied_and_failed(history: RunHistory) -> str:
    """Return how many actions against stragglers came into effect, and how many were given up."""
    ended = Counter(action.status for action in history.mitigations)
    return f"{ended[ProposalStatus.APPLIED]} and {ended[ProposalStatus.FAILED]}"


def speeds_chart(histories: Sequence[RunHistory]) -> StaticChart:
    """Return the throughput of runs over the time since each began."""
    return curves_chart(
        [
            Curve(history.run.run, *series_line(history.series, history.run.started_at_s, "samples_per_s"))
            for history in histories
        ],
        units.counted(len(histories), "run"),
    )


@dataclass(frozen=True, slots=True)
class Curve:
    """One of several lines in a chart: times since its beginning in seconds, and values."""

    name: str
    t_s: Sequence[float]
    y: Sequence[float]


def curves_chart(
    curves: Sequence[Curve],
    whose: str,
    *,
    title: str = "Throughput",
    unit: str = "samples/s",
    digits: int | None = None,
) -> StaticChart:
    """Return lines over the time since each began; colors and dashes differ.

    `digits` are those after the point, of a value whose axis need not begin at zero.
    """
    lines = [
        Line(each.t_s, each.y, CYCLE[i % len(CYCLE)], each.name, DASHES[i % len(DASHES)])
        for i, each in enumerate(curves)
    ]
    words = f"{title} of {whose} over the time since each began."
    layers = tuple(replace(line, x=x, y=y) for line in lines for x, y in (few(line.x, line.y),))
    plot = Plot(title, words, "time since start", unit, layers, x_is_time=True, height=280)
    if digits is not None:
        plot = replace(plot, y_from_zero=False)
    return StaticChart(draw_panel(plot).svg, _twin(lines, unit, 3 if digits is None else digits))


def _twin(lines: Sequence[Line], unit: str, digits: int) -> Table:
    """Return the means of all lines over the same spans of time."""
    most_s = max((t for line in lines for t in line.x), default=0.0)
    width = most_s / N_TWIN_ROW or 1.0
    columns = []
    for line in lines:
        spans: list[list[float]] = [[] for _ in range(N_TWIN_ROW)]
        for t, value in zip(line.x, line.y, strict=True):
            if units.known(value):
                spans[min(max(int(t / width), 0), N_TWIN_ROW - 1)].append(value)
        columns.append([units.number(fmean(span), digits) if span else units.MISSING for span in spans])
    rows = tuple(
        (units.elapsed((i + 1) * width), *cells) for i, cells in enumerate(zip(*columns, strict=True))
    )
    return Table(f"Mean {unit} over time", ("until (m:ss)", *(line.label for line in lines)), rows)


def _plans(histories: Sequence[RunHistory]) -> Table:
    rows = tuple(
        (
            history.run.run,
            units.elapsed(span.at_s - history.run.started_at_s),
            units.unbroken(span.plan.short),
            units.memory(span.plan.total_memory_mib),
        )
        for history in histories
        for span in plan_spans(history)
    )
    return Table("Plans", ("run", "from (m:ss)", "plan", "memory in all"), rows)


def _actions(histories: Sequence[RunHistory]) -> tuple[Table, ...]:
    """Return the actions against stragglers, in words; nothing where no run has any."""
    rows = tuple(
        (
            history.run.run,
            units.elapsed(action.created_at_s - history.run.started_at_s),
            action.words,
            status_words(action),
        )
        for history in histories
        for action in history.mitigations
    )
    head = ("run", "from (m:ss)", "action", "status")
    return (Table("Actions against stragglers", head, rows),) if rows else ()


def _outcomes(histories: Sequence[RunHistory]) -> Table:
    rows = tuple(
        (
            history.run.run,
            outcome.decision,
            units.unbroken(outcome.plan.short),
            units.rate(outcome.predicted.samples_per_s if outcome.predicted else None),
            units.rate(outcome.comparable_samples_per_s),
            units.rate(outcome.measured_samples_per_s),
            units.signed_percent(outcome.error),
        )
        for history in histories
        for outcome in history.outcomes
    )
    head = ("run", "decision", "plan", "predicted", "measured, host as predicted", "measured", "error")
    return Table("Predicted against measured", head, rows)
