"""A job as one self-contained HTML file with every plot and number, readable anywhere, years later."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Block, Facts, Heading, Paragraph, Verbatim, View, escape
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.plans import fit_blocks, past_blocks, proposal_blocks
from dlrover_nb.widgets.status import (
    evaluation_words,
    memory_blocks,
    nodes_blocks,
    shards_table,
    summary_facts,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.prices import PriceTable
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk


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
        "<style>body{margin:24px auto;max-width:1020px;padding:0 12px;background:#f6f8fa}</style></head>"
        f"<body>{view.html()}</body></html>\n"
    )


def report_blocks(snapshot: JobSnapshot, series: SeriesChunk | None) -> list[Block]:
    """Return the report's content, the most requested first."""
    return [
        Facts((*summary_facts(snapshot), *_setting_facts(snapshot))),
        Heading("Throughput"),
        CHARTS["throughput"].static(snapshot, series),
        CHARTS["workers"].static(snapshot, series),
        Heading("Decisions and how they turned out"),
        *(past_blocks(snapshot) or (Paragraph("No plan was proposed or decided."),)),
        CHARTS["scores"].static(snapshot, series),
        *(proposal_blocks(snapshot) if snapshot.open_proposal else ()),
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
        CHARTS["breakdown"].static(snapshot, series),
        CHARTS["stragglers"].static(snapshot, series),
        Heading("Data"),
        shards_table(snapshot),
        CHARTS["shards"].static(snapshot, series),
        Paragraph(f"Evaluation: {evaluation_words(snapshot)}."),
        *((CHARTS["rounds"].static(snapshot, series),) if snapshot.rounds else ()),
        Heading("Story"),
        Verbatim("\n".join(snapshot.story) or "nothing happened yet"),
    ]


def _setting_facts(snapshot: JobSnapshot) -> tuple[tuple[str, str], ...]:
    spec = snapshot.spec
    return (
        ("owner", spec.owner or units.MISSING),
        ("data", f"{spec.data.format} {spec.data.path}".strip()),
        (
            "training set-up",
            f"{spec.model.name}, batch {spec.batch_size:,}, {spec.n_epoch} epochs, seed {spec.seed}",
        ),
        ("prices", _price_words(spec.prices)),
        ("started", units.clock(snapshot.started_at_s)),
        ("ended", units.clock(snapshot.ended_at_s)),
    )


def _price_words(prices: PriceTable) -> str:
    assumed = " (assumed; give your own in the job)" if prices.assumed else ""
    parts = [
        f"{units.PRICE_UNKNOWN if price is None else f'{price:g}'} per {what}"
        for what, price in (("core hour", prices.cpu_hour), ("GiB hour", prices.gib_hour))
    ]
    return f"{', '.join(parts)}, in {prices.currency}{assumed}"
