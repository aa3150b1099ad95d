"""A job as one self-contained HTML file with every plot and number, readable anywhere, years later."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Contents, Facts, Heading, Paragraph, Verbatim, View, escape
from dlrover_nb.widgets.charts import CHARTS, PAGES, STALENESS
from dlrover_nb.widgets.jobs.headline import headline
from dlrover_nb.widgets.jobs.plans import fit_blocks, past_blocks, proposal_blocks
from dlrover_nb.widgets.jobs.staleness_view import staleness_blocks
from dlrover_nb.widgets.jobs.status import (
    evaluation_words,
    memory_blocks,
    nodes_blocks,
    shards_table,
    summary_facts,
)
from dlrover_nb.widgets.mitigations import open_blocks, slow_blocks
from dlrover_nb.widgets.theme import REPORT_CSS

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.prices import PriceTable
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk

PLACED = {  # charts that a part of the report has
    "throughput", "workers", "scores", "front", "curve", "memory", "breakdown", "stragglers", "shards",
    "rounds", *PAGES[STALENESS],
}  # fmt: skip


def write_report(path: str | Path, snapshot: JobSnapshot, series: SeriesChunk | None = None) -> Path:
    """Write the report of a job to `path` and return it."""
    target = Path(path)
    target.write_text(report_html(snapshot, series), encoding="utf-8")
    return target


def report_html(snapshot: JobSnapshot, series: SeriesChunk | None = None) -> str:
    """Return the whole file: no script, no request."""
    name = snapshot.title
    view = View(f"Report of job {name}", tuple(report_blocks(snapshot, series)))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(name)}: training report</title>"
        f"<style>body{{margin:24px auto;max-width:1020px;padding:0 12px}}{REPORT_CSS}</style></head>"
        f"<body><main>{view.html(level=1)}</main></body></html>\n"
    )


def report_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> list[Block]:
    """Return the report's content: its head, links to its parts, and the parts, the most requested first."""
    head = (headline(snapshot), Facts((*summary_facts(snapshot), *_setting_facts(snapshot))))
    parts = [_anchored(block) for block in _parts(snapshot, series)]
    return [*head, Contents(tuple(b for b in parts if isinstance(b, Heading))), *parts]


def _anchored(block: Block) -> Block:
    """Return a heading as a place that a link leads to."""
    if not isinstance(block, Heading):
        return block
    return replace(block, anchor="-".join(re.findall(r"\w+", block.text.lower())))


def _parts(snapshot: JobSnapshot, series: SeriesChunk | None) -> list[Block]:
    return [
        Heading("Throughput"),
        CHARTS["throughput"].static(snapshot, series),
        CHARTS["workers"].static(snapshot, series),
        Heading("Decisions and how they turned out"),
        *(past_blocks(snapshot) or (Paragraph("No plan was proposed or decided."),)),
        CHARTS["scores"].static(snapshot, series),
        *(proposal_blocks(snapshot) if snapshot.open_proposal else ()),
        *open_blocks(snapshot),
        Heading("Plans: cost and throughput"),
        CHARTS["front"].static(snapshot, series),
        Heading("Resource-performance model"),
        CHARTS["curve"].static(snapshot, series),
        *fit_blocks(snapshot),
        Heading("Memory"),
        CHARTS["memory"].static(snapshot, series),
        *memory_blocks(snapshot),
        Heading("Nodes"),
        *nodes_blocks(snapshot),
        *slow_blocks(snapshot),
        CHARTS["breakdown"].static(snapshot, series),
        CHARTS["stragglers"].static(snapshot, series),
        *staleness_blocks(snapshot, series),
        Heading("Data"),
        shards_table(snapshot),
        CHARTS["shards"].static(snapshot, series),
        Paragraph(f"Evaluation: {evaluation_words(snapshot)}."),
        *((CHARTS["rounds"].static(snapshot, series),) if snapshot.rounds else ()),
        *_more_charts(snapshot, series),
        Heading("Story"),
        Verbatim("\n".join(snapshot.story) or "nothing happened yet"),
    ]


def _more_charts(snapshot: JobSnapshot, series: SeriesChunk | None) -> tuple[Block, ...]:
    charts = [CHARTS[name].static(snapshot, series) for name in CHARTS if name not in PLACED]
    return (Heading("More charts"), *charts) if charts else ()


def _setting_facts(snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    spec = snapshot.spec
    return (
        ("owner", spec.owner or units.MISSING),
        ("data", spec.data.words),
        ("training set-up", f"{spec.training_words}, seed {spec.seed}"),
        ("prices", _price_words(spec.prices)),
        ("started", units.clock(snapshot.started_at_s)),
        ("ended", units.clock(snapshot.ended_at_s)),
    )


def _price_words(prices: PriceTable) -> str:
    assumed = " (assumed; set your own in the job file)" if prices.assumed else ""
    parts = [
        f"{units.PRICE_UNKNOWN if price is None else f'{price:g}'} per {what}"
        for what, price in (("core hour", prices.cpu_hour), ("GiB hour", prices.gib_hour))
    ]
    if prices.gpu_hour is not None:
        parts.append(f"{prices.gpu_hour:g} per GPU hour")
    return f"{', '.join(parts)}, in {prices.currency}{assumed}"
