"""A job at a moment in its past as a view: its state, what was advised and why, and what was known."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, StaticChart, Table, Tone, View
from dlrover_nb.widgets.jobs.plans import told_blocks
from dlrover_nb.widgets.past.history import fits_table, speeds_table
from dlrover_nb.widgets.past.records import fit_view, forecast_view, front_view, proposal_view
from dlrover_nb.widgets.series import few
from dlrover_nb.widgets.svg.marks import Line, Plot
from dlrover_nb.widgets.svg.palette import BLUE
from dlrover_nb.widgets.svg.svg_drawing import draw_panel

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.moment import Happening, Moment

N_STORY = 12


def moment_words(moment: Moment, start_s: float, last: Happening | None) -> str:
    """Return a moment in a sentence, for readers who do not see the page change."""
    state = str(moment.phase) if moment.phase else "its state was not recorded"
    open_proposal = moment.open_proposal
    advised = f"{open_proposal.id} is open" if open_proposal else "no proposal is open"
    if (action := moment.open_mitigation) is not None:
        advised += f", {action.id} ({action.words}) waits"
    before = f" Last: {last.words}." if last else ""
    speed = units.rate(moment.samples_per_s)
    at = units.elapsed(moment.at_s - start_s)
    return f"{at} after the start: {state}, {moment.target.short}, {speed}, {advised}.{before}"


def moment_view(moment: Moment, start_s: float, job: str, span_s: float | None = None) -> View:
    """Return what was measured, known and advised at a moment; the throughput of the last `span_s` alone."""
    blocks: list[Block] = [Facts(_facts(moment, start_s))]
    if moment.missing:
        blocks.append(Paragraph(moment.missing, Tone.HINT))
    blocks += _advised(moment)
    blocks += _against_stragglers(moment, job)
    blocks += [speeds_chart(moment, start_s, span_s)] if moment.speeds else []
    blocks += _known(moment, start_s)
    decided = told_blocks(moment.proposals, moment.decisions, moment.outcomes)
    blocks += [Heading("Decisions up to then"), *decided] if decided else []
    if moment.story:
        rows = tuple((line,) for line in moment.story[-N_STORY:])
        blocks.append(Table("What had happened, newest last", ("story",), rows))
    return View(f"{job} at {units.clock(moment.at_s)}", tuple(blocks))


def _facts(moment: Moment, start_s: float) -> tuple[tuple[str, str], ...]:
    message = f": {moment.message}" if moment.message else ""
    running = moment.running
    runs = (
        "" if running is None else f"; {'it runs' if running == moment.target else f'{running.short} runs'}"
    )
    done = moment.n_sample_done
    progress = (
        (("trained", f"{done:,} of {moment.n_sample_total:,} samples"),)
        if done is not None and moment.n_sample_total
        else ()
    )
    return (
        ("moment", f"{units.clock(moment.at_s)}, {units.elapsed(moment.at_s - start_s)} after the start"),
        ("state", f"{moment.phase}{message}" if moment.phase else "not recorded for each moment"),
        ("plan", f"{moment.target}{runs}"),
        ("throughput", units.rate(moment.samples_per_s)),
        *progress,
        *((("mode", str(moment.mode)),) if moment.mode else ()),
        ("read from", f"the {moment.source}"),
    )


def _advised(moment: Moment) -> tuple[Block, ...]:
    proposal = moment.open_proposal
    head = Heading("Advised then")
    if proposal is None:
        return (head, Paragraph("There was no open proposal."))
    blocks: tuple[Block, ...] = (head, Paragraph(f"Proposal {proposal.id} was open."))
    blocks += proposal_view(proposal).blocks
    return blocks + (front_view(moment.front).blocks if moment.front is not None else ())


def _against_stragglers(moment: Moment, job: str) -> tuple[Block, ...]:
    """Return who was slow, and the actions against that so far; nothing where there was none."""
    slow = tuple(
        Paragraph(mitigations.slow_words(each, job), Tone.WARNING)
        for each in mitigations.worst(moment.stragglers)
    )
    opened = moment.open_mitigation
    waits: tuple[Block, ...] = ()
    if opened is not None:
        head = Paragraph(f"Action {mitigations.head_words(opened)} waited.")
        waits = (head, Facts(mitigations.facts(opened)))
    done = mitigations.closed_table(moment.mitigations, moment.decisions)
    blocks = (*slow, *waits, *((done,) if done is not None else ()))
    return (Heading("Stragglers then"), *blocks) if blocks else ()


def _known(moment: Moment, start_s: float) -> tuple[Block, ...]:
    blocks: list[Block] = [Heading("Known then")]
    if moment.fit is not None:
        blocks += fit_view(moment.fit).blocks
    elif moment.fit_kept is not None:
        blocks.append(fits_table((moment.fit_kept,), start_s))
    else:
        blocks.append(Paragraph("There was no fit yet."))
    for line in moment.memory:
        blocks += forecast_view(line).blocks
    return tuple(blocks)


def speeds_chart(moment: Moment, start_s: float, span_s: float | None = None) -> StaticChart:
    """Return the throughput up to the moment, from the start or of the last `span_s`."""
    first_s = start_s if span_s is None else max(start_s, moment.at_s - span_s)
    speeds = moment.speeds if first_s == start_s else moment.speeds[bisect_left(moment.speeds, (first_s,)) :]
    t_s = [at_s - start_s for at_s, _ in speeds]
    y = [value for _, value in speeds]
    begins = "the start" if first_s == start_s else units.elapsed(first_s - start_s)
    words = f"Throughput from {begins} up to {units.elapsed(moment.at_s - start_s)}."
    line = Line(*few(t_s, y), BLUE, "measured")
    plot = Plot(
        "Throughput until then", words, "time since start", "samples/s", (line,), x_is_time=True, height=220
    )
    return StaticChart(draw_panel(plot).svg, speeds_table("Throughput until then, in numbers", t_s, y))
