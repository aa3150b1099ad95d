"""Past runs as views: the list of runs, and one run with its speed, decisions and outcomes."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import redact
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, StaticChart, Table, Tone, View
from dlrover_nb.widgets.jobs.plans import told_blocks
from dlrover_nb.widgets.mitigations import told_actions
from dlrover_nb.widgets.series import few, summary_rows
from dlrover_nb.widgets.svg.marks import Band, Layer, Line, Plot, Rule
from dlrover_nb.widgets.svg.palette import BLUE, ORANGE, PS_COLOR, WORKER_COLOR
from dlrover_nb.widgets.svg.svg_drawing import draw_panel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.history import JobRun
    from dlrover_nb.core.structs.decisions.decisions import Outcome
    from dlrover_nb.core.structs.views.past_jobs import FitSummary, SeriesRow

NO_RUN = "No runs are recorded yet. Every job on a real cluster is recorded from its start. Run one with:"
FIRST_STEPS = ("%dlrover connect ray", "%dlrover submit quick-start")
_GAP = 1.5  # spans without reports after which the line breaks
N_TWIN_ROW = 12


def runs_view(runs: Sequence[JobRun]) -> View:
    """Return the runs in the history, newest first."""
    if not runs:
        return View("History", (Paragraph(NO_RUN, Tone.HINT, FIRST_STEPS),))
    head = ("job", "run", "owner", "started", "ended as", "took", "plan at first", "model")
    rows = tuple(map(_run_row, runs))
    hint = Paragraph("See one with:", Tone.HINT, (f"%dlrover history {runs[0].job} --run {runs[0].run}",))
    return View("History", (Table(f"{units.counted(len(runs), 'run')}, newest first", head, rows), hint))


def _run_row(run: JobRun) -> tuple[str, ...]:
    took_s = None if run.ended_at_s is None else run.ended_at_s - run.started_at_s
    return (
        run.job,
        run.run,
        run.owner or units.MISSING,
        units.clock(run.started_at_s),
        ended_words(run),
        units.unbroken(units.duration(took_s)),
        units.unbroken(run.spec.plan.short),
        run.spec.model.name,
    )


def ended_words(run: JobRun) -> str:
    """Return how a run ended; without an end, its last known state: it runs, or its master was lost."""
    return str(run.phase) if run.ended_at_s is not None else f"{run.phase} (end unknown)"


def history_view(history: RunHistory) -> View:
    """Return one run: its job, throughput, decisions and outcomes."""
    run = history.run
    decided = told_blocks(history.proposals, history.decisions, history.outcomes)
    acted = told_actions(history.mitigations, history.decisions)
    blocks: list[Block] = [Facts(_run_facts(run)), speed_chart(history)]
    blocks += [memory_chart(history)] if history.series else []
    blocks += [Heading("Decisions and how they turned out"), *decided] if decided else []
    blocks += [Heading("Actions against stragglers"), *acted] if acted else []
    blocks += [fits_table(history.fits, run.started_at_s)] if history.fits else []
    if not decided:
        blocks.append(Paragraph("No plan was proposed or decided."))
    return View(f"History of {run.job}, run {run.run}", tuple(blocks))


def _run_facts(run: JobRun) -> tuple[tuple[str, str], ...]:
    start = run.spec.start_from
    began = (
        ""
        if start is None
        else f"{redact(start.source)}, {'with its rows' if start.rows else 'parameters alone'}"
    )
    message = f": {run.message}" if run.message else ""
    return (
        ("owner", run.owner or units.MISSING),
        ("started", units.clock(run.started_at_s)),
        ("ended", f"{units.clock(run.ended_at_s)}, {ended_words(run)}{message}"),
        ("plan at first", str(run.spec.plan)),
        ("data", run.spec.data.words),
        ("training", run.spec.training_words),
        *((("began from", began),) if began else ()),
    )


def speed_chart(history: RunHistory) -> StaticChart:
    """Return the throughput of a run with the applied plans and their predictions."""
    start_s = history.run.started_at_s
    t_s, y = series_line(history.series, start_s, "samples_per_s")
    applied = sorted(history.outcomes, key=lambda o: o.applied_at_s)
    layers: tuple[Layer, ...] = (
        *_levels(applied, start_s, max([0.0, *t_s])),
        Line(*few(t_s, y), BLUE, "measured" if t_s else ""),
        *(Rule(max(0.0, o.applied_at_s - start_s), o.plan.short, dash="2 3") for o in applied),
    )
    title = "Throughput" if t_s else "Throughput: nothing was measured"
    words = f"Mean throughput of each rolled-up span of {history.run.job}, {len(applied)} plans applied."
    plot = Plot(title, words, "time since start", "samples/s", layers, x_is_time=True, height=270)
    return StaticChart(draw_panel(plot).svg, speeds_table("Throughput over time", t_s, y))


def memory_chart(history: RunHistory) -> StaticChart:
    """Return the memory of the largest node of each role over a run."""
    start_s = history.run.started_at_s
    lines = {role: series_line(history.series, start_s, f"{role}_memory_mib") for role in Role}
    looks = {Role.WORKER: (WORKER_COLOR, ""), Role.PS: (PS_COLOR, "6 3")}
    layers = tuple(Line(*few(*lines[r]), color, f"largest {r}", dash) for r, (color, dash) in looks.items())
    words = f"Greatest memory of any node of each role over the run of {history.run.job}."
    plot = Plot("Memory", words, "time since start", "MiB", layers, x_is_time=True, height=220)
    return StaticChart(draw_panel(plot).svg, _memory_twin(lines))


def _memory_twin(lines: dict[Role, tuple[list[float], list[float]]]) -> Table:
    greatest = [summary_rows(*line, N_TWIN_ROW) for line in lines.values()]
    rows = tuple(
        (units.elapsed(t), units.memory(worker), units.memory(ps))
        for (t, _, _, worker), (_, _, _, ps) in zip(*greatest, strict=True)
    )
    return Table("Greatest memory over time", ("until (m:ss)", "largest worker", "largest ps"), rows)


def series_line(rows: Sequence[SeriesRow], start_s: float, column: str) -> tuple[list[float], list[float]]:
    """Return times and a column, NaN between spans that are not adjacent."""
    points: list[tuple[float, float]] = []
    for before, row in pairwise((None, *rows)):
        assert row is not None
        if before is not None and row.at_s - row.span_s - before.at_s > _GAP * row.span_s:
            points.append(((before.at_s + row.at_s) / 2 - start_s, math.nan))
        points.append((row.at_s - row.span_s / 2 - start_s, getattr(row, column)))
    return [t for t, _ in points], [v for _, v in points]


def _levels(applied: Sequence[Outcome], start_s: float, end_s: float) -> tuple[Layer, ...]:
    """Return the predicted level of each applied plan with its band, until the next one."""
    x: list[float] = []
    low, mid, high = [], [], []
    for outcome, after in pairwise((*applied, None)):
        assert outcome is not None
        p = outcome.predicted
        if p is not None:
            from_s = max(0.0, outcome.applied_at_s - start_s)
            until_s = max(from_s, after.applied_at_s - start_s if after else end_s)
            x += [from_s, until_s, until_s]
            low += [p.low, p.low, math.nan]
            mid += [p.samples_per_s, p.samples_per_s, math.nan]
            high += [p.high, p.high, math.nan]
    label = "predicted when proposed" if x else ""
    return (
        Band(x, low, high, ORANGE, "90 % band" if x else ""),
        Line(x, mid, ORANGE, label, dash="6 3", is_guide=True),
    )


def speeds_table(title: str, t_s: Sequence[float], y: Sequence[float]) -> Table:
    """Return the numbers of a line of throughput, over equal spans of time."""
    rows = tuple(
        (units.elapsed(t), units.number(mean), units.number(low), units.number(high))
        for t, mean, low, high in summary_rows(t_s, y, N_TWIN_ROW)
    )
    return Table(title, ("until (m:ss)", "mean samples/s", "least", "greatest"), rows)


def fits_table(fits: Sequence[FitSummary], start_s: float) -> Table:
    """Return the data behind each fit of a run, oldest first; of many, the last of equal parts."""
    sample = [fits[(i + 1) * len(fits) // N_TWIN_ROW - 1] for i in range(N_TWIN_ROW)]
    rows = tuple(
        (
            units.elapsed(f.at_s - start_s),
            f"{f.n_plan}",
            f"{f.n_sample}",
            units.percent(f.log_error, 1),
            ", ".join(t.term for t in f.terms if t.identified) or "none",
        )
        for f in (sample if len(fits) > N_TWIN_ROW else fits)
    )
    head = ("at (m:ss)", "plans", "samples", "error between plans", "terms determined")
    return Table(f"Fits ({len(fits)} in all)", head, rows)
