"""Styles of the lines of many jobs: a color and a dash for each, the same in chart and table."""

from __future__ import annotations

from dlrover_nb.widgets.svg.palette import CYCLE, DASHES

N_LOOK = len(CYCLE) * len(DASHES)  # 49 lines differ; the job's name is in the tool tip and the table


def look(slot: int) -> tuple[str, str]:
    """Return the color and the dash of a line; each dash is used with all colors before the next dash."""
    return CYCLE[slot % len(CYCLE)], DASHES[slot // len(CYCLE) % len(DASHES)]


def swatch(slot: int | None) -> str:
    """Return a piece of the line as inline SVG, for a table; nothing for a job that is not drawn."""
    if slot is None:
        return ""
    color, dash = look(slot)
    return (
        '<svg width="30" height="8" aria-hidden="true">'
        f'<path d="M0 4h30" stroke="{color}" stroke-width="2" stroke-dasharray="{dash}"/></svg>'
    )
