"""One row of the list of all jobs: the words of each cell, and what a column is sorted by. Pure.

A cell is text, as state is told in words and never by color alone. Where the first number of the text is not
what the column compares, the cell has a value beside it. Times and shares are rounded to what a person reads,
so that a cell changes, and is sent, only when its words do.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.budget import NEAR_SHARE
from dlrover_nb.core.structs.plan.deadline import percent as chance_words
from dlrover_nb.core.structs.plan.prices import ASSUMED
from dlrover_nb.widgets import units
from dlrover_nb.widgets.clusters.many.columns import coarse_s
from dlrover_nb.widgets.mitigations import gain_words
from dlrover_nb.widgets.series import natural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.decisions import Prediction
    from dlrover_nb.core.structs.views.summary import JobOutlook, JobSummary, ProposedChange

DEADLINE_CHANCE = 0.5  # below it the deadline needs attention
_NUMBER = re.compile(r"[-+]?[\d,]+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its key in addresses and events, its title, its share of the width in percent.

    `is_number`: its text begins with a number. Widths are fixed, so that no cell that changes moves another.
    """

    key: str
    title: str
    width: int
    is_number: bool = False


COLUMNS = (
    Column("job", "Job", 12),
    Column("needs", "Needs", 9),
    Column("state", "State", 11),
    Column("owner", "Owner", 8),
    Column("mode", "Decides", 6),
    Column("rate", "Samples/s", 7, is_number=True),
    Column("versus", "Against prediction", 9),
    Column("memory", "Memory left", 8, is_number=True),
    Column("cost", "Cost per hour", 8, is_number=True),
    Column("done", "Trained", 6, is_number=True),
    Column("ends", "Ends in", 6),
    Column("proposal", "Proposal", 10),
)
KEYS = {column.key: column for column in COLUMNS}


@dataclass(frozen=True, slots=True)
class Cell:
    """Words, and the number that they are sorted by where it is not the first one in them."""

    text: str
    value: float | None = None

    @property
    def wire(self) -> str | list[str | float]:
        """The cell in an event."""
        return self.text if self.value is None else [self.text, self.value]


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job: a cell for each of `COLUMNS`, and what it is filtered by."""

    name: str
    cells: tuple[Cell, ...]
    phase: str
    owner: str
    needs: tuple[str, ...]

    def cell(self, key: str) -> Cell:
        """Return the cell of a column."""
        return self.cells[[*KEYS].index(key)]

    @property
    def wire(self) -> dict[str, str | list[str | float]]:
        """The row in an event: cells by key, and two values for the filters, which are no cells."""
        cells = {column.key: cell.wire for column, cell in zip(COLUMNS, self.cells, strict=True)}
        return {**cells, "_phase": self.phase, "_needs": "1" if self.needs else ""}


def row_of(job: JobSummary, silent_s: float = 0.0) -> JobRow:
    """Return the row of a job; one whose master has been silent for a while keeps what it said last."""
    runs, outlook = not job.phase.is_final, job.outlook
    wants = ((2, "master silent"),) if silent_s else needs(job)
    cells = (
        Cell(job.name),
        Cell("; ".join(words for _, words in wants) or units.MISSING, min((r for r, _ in wants), default=9)),
        Cell(state_words(job) + silent_words(silent_s)),
        Cell(job.owner or units.MISSING),
        Cell(str(outlook.mode) if outlook.mode and runs else units.MISSING),
        Cell(units.number(job.samples_per_s) if runs and not silent_s else units.MISSING),
        versus(job) if runs and not silent_s else Cell(units.MISSING),
        Cell(memory_words(outlook) if runs else units.MISSING),
        Cell(cost_words(outlook) if runs else units.MISSING),
        Cell(units.percent(job.done)),
        _ends(job) if runs else Cell(units.MISSING),
        Cell(proposal_words(job) if runs else units.MISSING),
    )
    return JobRow(job.name, cells, str(job.phase), job.owner, tuple(words for _, words in wants))


def needs(job: JobSummary) -> tuple[tuple[int, str], ...]:
    """Return what a job needs of a person, most urgent first, each with its rank."""
    outlook = job.outlook
    if job.phase.is_final:
        return ((2, "failed"),) if job.phase is JobPhase.FAILED else ()
    wanted = (
        (0, f"answer {' and '.join(job.waiting)}", bool(job.waiting)),
        (1, "memory", bool(job.memory_needs)),
        (3, "nodes wait", outlook.n_waiting > 0),
        (4, "deadline", outlook.in_time is not None and outlook.in_time < DEADLINE_CHANCE),
        (4, "budget", (outlook.spent_share or 0.0) >= NEAR_SHARE),
        (5, "slower than predicted", _off_band(job) < 0),
    )
    return tuple((rank, words) for rank, words, is_wanted in wanted if is_wanted)


def state_words(job: JobSummary) -> str:
    """Return the phase, whether nothing of it is real, why it failed, and how many nodes wait."""
    phase = f"{job.phase} (simulated)" if job.simulated else str(job.phase)
    if job.phase is JobPhase.FAILED and job.message:
        return f"{phase}: {job.message.splitlines()[0][:120]}"
    n_waiting = job.outlook.n_waiting
    waits = f", {units.counted(n_waiting, 'node')} wait{'s' * (n_waiting == 1)}" if n_waiting else ""
    return f"{phase}{waits}"


def silent_words(silent_s: float) -> str:
    """Return for how long a master gives no answer, in steps of 5 s; empty: it does."""
    return f", no answer for {units.duration(5 * (silent_s // 5 + 1))}" if silent_s else ""


def versus(job: JobSummary) -> Cell:
    """Return how the throughput compares with the prediction: ``12 % below the band``."""
    if job.outlook.predicted is None or job.phase is not JobPhase.TRAINING or job.samples_per_s <= 0:
        return Cell(units.MISSING)
    off = _off_band(job)
    return Cell(band_words(off), off)


def _off_band(job: JobSummary) -> float:
    predicted = job.outlook.predicted
    if predicted is None or job.phase is not JobPhase.TRAINING or job.samples_per_s <= 0:
        return 0.0
    return off_band(job.samples_per_s, predicted)


def off_band(samples_per_s: float, predicted: Prediction) -> float:
    """Return how far a throughput lies off the band, as a share of its nearer edge: 0 inside, negative below.

    It is rounded to whole percents, so that it changes with its words.
    """
    edge = min(max(samples_per_s, predicted.low), predicted.high)
    return round(samples_per_s / edge - 1, 2) + 0.0 if edge > 0 else 0.0


def band_words(off: float) -> str:
    """Return the distance from a band in words."""
    if not off:
        return "within the band"
    return f"{units.percent(abs(off))} {'below' if off < 0 else 'above'} the band"


def memory_words(outlook: JobOutlook) -> str:
    """Return the share of memory that the fullest role has left, and when it is full."""
    if outlook.memory_left is None:
        return units.MISSING
    full = f", full in {units.duration(coarse_s(outlook.full_in_s))}" if outlook.full_in_s is not None else ""
    return f"{units.percent(outlook.memory_left)}{full}"


def cost_words(outlook: JobOutlook) -> str:
    """Return what the plan costs per hour; an unknown price is told as that."""
    note = f", {ASSUMED.split()[0]}" if outlook.prices_assumed and outlook.cost_per_hour is not None else ""
    spent = (
        "" if outlook.spent_share is None else f", {units.percent(outlook.spent_share)} of its budget spent"
    )
    return f"{units.money(outlook.cost_per_hour, units.Currency(outlook.currency))}{note}{spent}"


def proposal_words(job: JobSummary) -> str:
    """Return what waits for an answer: the proposal with its gain and cost, and the action."""
    parts = []
    if job.open_proposal is not None:
        change = job.outlook.proposed
        change_text = "" if change is None else f" {change_words(change, job.outlook)}"
        parts.append(f"{job.open_proposal}{change_text}")
    if (action := job.outlook.mitigation) is not None:
        gain = "" if action.gain is None else f", {gain_words(action.gain)}"
        parts.append(f"{action.id} {action.words}{gain}")
    return "; ".join(parts) or units.MISSING


def change_words(change: ProposedChange, outlook: JobOutlook) -> str:
    """Return kind, gain and further cost of a proposal: ``improve: +90.0 %, +0.02 USD/h``."""
    gain = change.samples_per_s / change.before_samples_per_s - 1 if change.before_samples_per_s else math.nan
    new, old = change.cost_per_hour, change.before_cost_per_hour
    more = (
        units.PRICE_UNKNOWN
        if new is None or old is None
        else units.signed_money(new - old, units.Currency(outlook.currency), per="h")
    )
    return f"{change.kind}: {units.signed_percent(gain)}, {more}"


def _ends(job: JobSummary) -> Cell:
    left_s, chance = coarse_s(job.left_s), job.outlook.in_time
    due = "" if chance is None else f", {chance_words(chance)} by the deadline"
    return Cell(f"{units.duration(left_s)}{due}", left_s if units.known(left_s) else None)


def sort_value(row: JobRow, key: str) -> float | str | None:
    """Return what a row is sorted by; None, of what is not known, stands last either way."""
    cell = row.cell(key)
    if cell.value is not None:
        return cell.value
    if cell.text == units.MISSING:
        return None
    if not KEYS[key].is_number:
        return cell.text.lower()
    match = _NUMBER.match(cell.text)
    return float(match[0].replace(",", "")) if match else None


def ordered(rows: Iterable[JobRow], key: str, *, is_down: bool) -> list[JobRow]:
    """Return rows by a column; those that are equal in it by name."""
    named = sorted(rows, key=lambda row: natural(row.name))
    valued = [row for row in named if sort_value(row, key) is not None]
    if key == "job":
        valued.sort(key=lambda row: natural(row.name), reverse=is_down)
    else:
        valued.sort(key=lambda row: _comparable(sort_value(row, key)), reverse=is_down)
    return valued + [row for row in named if sort_value(row, key) is None]


def _comparable(value: float | str | None) -> tuple[int, float, str]:
    """Return a key for numbers and texts of one column: ``price unknown`` stands among amounts."""
    return (1, 0.0, value) if isinstance(value, str) else (0, value or 0.0, "")
