"""A job in a list of jobs: what it needs of a person, and the words of each of its cells. Pure.

A cell is text, as state is told in words and never by color alone. Where the first number of the text is not
what the column compares, the cell has a value beside it. Times and shares are rounded to what a person reads,
so that a cell changes, and is sent to a browser, only when its words do.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from dlrover_nb.core.basics.percents import chance_words
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.budget import NEAR_SHARE
from dlrover_nb.widgets import units
from dlrover_nb.widgets.mitigations import gain_words
from dlrover_nb.widgets.rows.job_sentence import job_sentence

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.candidates import Prediction
    from dlrover_nb.core.structs.views.summary import JobOutlook, JobSummary, ProposedChange

DEADLINE_CHANCE = 0.5  # below it the deadline needs attention
MOST_LETTERS = 120  # of a reason within a cell
SILENT_STEP_S = 5.0  # a finer count of the seconds without an answer would only flicker


class Rank(IntEnum):
    """What stands first in a list: what runs and needs a person, most urgent first, then the rest.

    A failed job needs a look, but nothing gets worse meanwhile: it stands below what runs.
    """

    ANSWER = 0
    MEMORY = 1
    SILENT = 2
    NODES = 3
    LIMIT = 4
    SLOW = 5
    RUNS = 6
    FAILED = 7
    ENDED = 8

    @property
    def needs_person(self) -> bool:
        """Whether a job of this rank needs something of a person."""
        return self not in {Rank.RUNS, Rank.ENDED}


class Liveness(IntEnum):
    """How much a summary still says of a job."""

    ENDED = 0  # what it did
    SILENT = 1  # also its plan and what follows of that; not how fast it is now
    ANSWERING = 2


Needs = tuple[tuple[Rank, str], ...]


@dataclass(frozen=True, slots=True)
class JobLine:
    """One line of a list of jobs.

    Parameters
    ----------
    job
        What its master said last.
    silent_s
        For how long it has given no answer since; 0: it answers.
    needs
        What it needs of a person, most urgent first, each with its rank.
    now_s
        The time now, for a list that is drawn anew all the time; None: for one that is saved.
    """

    job: JobSummary
    silent_s: float
    needs: Needs
    now_s: float | None = None

    @property
    def rank(self) -> Rank:
        """Its place in a list that begins with what needs attention."""
        if self.needs:
            return self.needs[0][0]
        return Rank.ENDED if self.job.phase.is_final else Rank.RUNS

    @property
    def liveness(self) -> Liveness:
        """How much its summary still says."""
        if self.job.phase.is_final:
            return Liveness.ENDED
        return Liveness.SILENT if self.silent_s or not self.job.live else Liveness.ANSWERING


def line_of(job: JobSummary, silent_s: float = 0.0, now_s: float | None = None) -> JobLine:
    """Return the line of a job; one whose master is silent keeps what it said last."""
    return JobLine(job, silent_s, needs(job, silent_s), now_s)


class Cell(NamedTuple):
    """Words, and the number that they are sorted by where it is not the first one in them.

    `why`: the reason behind the words; a list with room below itself tells it there, others in the cell.
    `exact`: what the words round, for who points at them.
    It is a tuple, which is made in a third of the time of a frozen record: there are 12,000 of them a second.
    """

    text: str
    value: float | None = None
    why: str = ""
    exact: str = ""

    @property
    def whole(self) -> Cell:
        """The cell with its reason in one line."""
        return Cell(f"{self.text}: {self.why.splitlines()[0][:MOST_LETTERS]}", self.value)


EMPTY = Cell(units.MISSING)


def needs(job: JobSummary, silent_s: float = 0.0) -> Needs:
    """Return what a job needs of a person, most urgent first: a silent master can take no answer."""
    if job.phase.is_final:
        return ((Rank.FAILED, "failed"),) if job.phase is JobPhase.FAILED else ()
    outlook, waiting = job.outlook, job.waiting
    wanted = (
        (Rank.SILENT, "master silent", silent_s > 0),
        (Rank.ANSWER, f"answer {' and '.join(waiting)}" if waiting else "", bool(waiting)),
        (Rank.ANSWER, "rows in question", outlook.n_in_question > 0),
        (Rank.MEMORY, "memory", bool(job.memory_needs)),
        (Rank.NODES, "nodes wait", outlook.n_waiting > 0),
        (Rank.LIMIT, "deadline", outlook.in_time is not None and outlook.in_time < DEADLINE_CHANCE),
        (Rank.LIMIT, "budget", (outlook.spent_share or 0.0) >= NEAR_SHARE),
        (Rank.SLOW, "slower than predicted", not silent_s and (_off_band(job) or 0.0) < 0),
    )
    return tuple((rank, words) for rank, words, is_wanted in wanted if is_wanted)


def needs_words(needed: Needs) -> str:
    """Return what is needed as text; empty: nothing."""
    return "; ".join(words for _, words in needed)


def needs_cell(line: JobLine) -> Cell:
    """Return what it needs."""
    return Cell(needs_words(line.needs) or units.MISSING, int(line.rank))


def state_cell(line: JobLine) -> Cell:
    """Return the phase, what to know of it, how many nodes wait, and why it failed or gives no answer."""
    job = line.job
    text = f"{job.phase}{f' ({remarks})' if (remarks := _remarks(line)) else ''}"
    if job.phase is JobPhase.FAILED or not (job.live or job.phase.is_final):
        return Cell(text, why=job.message.strip())
    if n_waiting := job.outlook.n_waiting:
        text = f"{text}, {units.counted(n_waiting, 'node')} wait{'s' * (n_waiting == 1)}"
    return Cell(text)


def _remarks(line: JobLine) -> str:
    """Return whether nothing of a job is real, whether it is of the past, and how long it has been silent."""
    job = line.job
    if job.live and not (job.simulated or line.silent_s):
        return ""
    remarks = ["simulated"] if job.simulated else []
    if line.silent_s:
        silent_s = SILENT_STEP_S * (line.silent_s // SILENT_STEP_S + 1)
        remarks.append(f"no answer for {units.duration(silent_s)}")
    elif not job.live:
        remarks.append("past" if job.phase.is_final else "no answer")
    return ", ".join(remarks)


def started_cell(line: JobLine) -> Cell:
    """Return when a job began: how long ago where the list is drawn anew all the time, else the moment."""
    began_s, now_s = line.job.started_at_s, line.job.at_s if line.job.simulated else line.now_s
    exact = units.clock(began_s)
    if line.now_s is None or now_s is None:
        return Cell(exact, began_s)
    return Cell(units.ago(now_s - began_s), began_s, exact=exact)


def quality_cell(line: JobLine) -> Cell:
    """Return how good the model is: on the held-out rows, where it was evaluated, else on what it trains."""
    evaluation, loss = line.job.outlook.evaluation, line.job.outlook.loss
    if evaluation is not None:
        exact = f"log loss {evaluation.log_loss:.4f} on {evaluation.n_sample:,} held-out rows"
        return Cell(f"AUC {evaluation.auc:.4f}", evaluation.auc, exact=exact)
    return Cell(f"loss {loss:.3g}", loss) if loss is not None and math.isfinite(loss) else EMPTY


def sentence_cell(line: JobLine) -> Cell:
    """Return what a colleague would say of the job; of a silent one, what that would have been."""
    text = job_sentence(line.job)
    is_old = line.liveness is Liveness.SILENT and line.job.plan is not None
    return Cell(f"Last heard: {text}" if is_old else text)


def versus_cell(line: JobLine) -> Cell:
    """Return how the throughput compares with the prediction: ``12 % below the band``."""
    off = _off_band(line.job)
    return EMPTY if off is None else Cell(band_words(off), off)


def _off_band(job: JobSummary) -> float | None:
    """Return how far a job is off its prediction; None: it has none, or does not train now."""
    predicted = job.outlook.predicted
    if predicted is None or job.phase is not JobPhase.TRAINING or job.samples_per_s <= 0:
        return None
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


def memory_cell(line: JobLine) -> Cell:
    """Return the share of memory that the fullest role has left, and when it is full."""
    outlook = line.job.outlook
    if outlook.memory_left is None:
        return EMPTY
    full = f", full in {units.duration(coarse_s(outlook.full_in_s))}" if outlook.full_in_s is not None else ""
    return Cell(f"{units.percent(outlook.memory_left)}{full}")


def cost_cell(line: JobLine) -> Cell:
    """Return what the plan costs per hour, or that its price is unknown; totals say whether it is assumed."""
    outlook = line.job.outlook
    share = outlook.spent_share
    spent = "" if share is None else f", {units.percent(share)} of its budget spent"
    return Cell(f"{units.money(outlook.cost_per_hour, units.Currency(outlook.currency))}{spent}")


def ends_cell(line: JobLine) -> Cell:
    """Return when the training ends at the present speed, and how probable that is by the deadline."""
    left_s, chance = coarse_s(line.job.left_s), line.job.outlook.in_time
    due = "" if chance is None else f", {chance_words(chance)} by the deadline"
    return Cell(f"{units.duration(left_s)}{due}", left_s if units.known(left_s) else None)


def coarse_s(seconds: float | None) -> float | None:
    """Return a time to two digits: the third would only flicker."""
    if seconds is None or not math.isfinite(seconds) or seconds <= 0:
        return seconds
    return float(f"{seconds:.2g}")


def proposal_cell(line: JobLine) -> Cell:
    """Return what waits for an answer: the proposal with its gain and cost, and the action."""
    job, parts = line.job, []
    if job.open_proposal is not None:
        change = job.outlook.proposed
        change_text = "" if change is None else f" {change_words(change, job.outlook)}"
        parts.append(f"{job.open_proposal}{change_text}")
    if (action := job.outlook.mitigation) is not None:
        gain = "" if action.gain is None else f", {gain_words(action.gain)}"
        parts.append(f"{action.id} {action.words}{gain}")
    return Cell("; ".join(parts)) if parts else EMPTY


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
