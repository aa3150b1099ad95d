"""What verbs and methods return: objects that display as text and as static HTML, in any front end.

The HTML holds inline SVG and tables only, so a saved notebook shows every plot and number with neither
kernel nor network. Nothing here imports panel or bokeh; live views are separate (`%dlrover watch`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError
from dlrover_nb.core.structs.cluster_access import NOTHING
from dlrover_nb.widgets import history, logs, plans, scores, status, units, why
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, Verbatim, View
from dlrover_nb.widgets.charts import CHARTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.past_runs import RunHistory
    from dlrover_nb.core.history import JobRun, Scoreboard
    from dlrover_nb.core.structs.capacity import Capacity
    from dlrover_nb.core.structs.cluster_access import Allowed, ClusterAccess
    from dlrover_nb.core.structs.decisions import Decision
    from dlrover_nb.core.structs.job import JobPhase
    from dlrover_nb.core.structs.questions import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.core.structs.summary import JobSummary
    from dlrover_nb.widgets.blocks import Block


class Shown:
    """Base of all of them: one `View`, rendered as text and as HTML."""

    __slots__ = ()

    def view(self) -> View:
        """Return the content."""
        raise NotImplementedError

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return self.view().mimebundle()

    def __str__(self) -> str:
        return self.view().text()


@dataclass(frozen=True, slots=True, repr=False)
class JobsView(Shown):
    """The list of jobs."""

    jobs: tuple[JobSummary, ...]

    def __iter__(self) -> Iterator[JobSummary]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)

    @property
    def candidates(self) -> tuple[JobSummary, ...]:
        """The jobs that a missing name may refer to: those that run, or else all."""
        live = tuple(j for j in self.jobs if j.live)
        return tuple(j for j in live if not j.phase.is_final) or live

    def only_name(self) -> str:
        """Return the name of the one job that runs, or, where none does, of the one job there is.

        Raises
        ------
        NotFoundError
            When there is none.
        InvalidValueError
            When there are several; it names them.
        """
        found = self.candidates
        if not found:
            raise NotFoundError("no job here; start one with submit")
        if len(found) == 1:
            return found[0].name
        what = "jobs are here, none of which runs" if found[0].phase.is_final else "jobs run"
        names = ", ".join(j.name for j in found)
        raise InvalidValueError(f"{len(found)} {what}; name one of them: {names}")

    def view(self) -> View:
        """Return the content."""
        return status.jobs_view(self.jobs)


@dataclass(frozen=True, slots=True, repr=False)
class StatusView(Shown):
    """The state of one job, with its telemetry where given."""

    snapshot: JobSnapshot
    series: SeriesChunk | None = None

    @property
    def phase(self) -> JobPhase:
        """The phase of the job."""
        return self.snapshot.phase

    def view(self) -> View:
        """Return the content."""
        return status.status_view(self.snapshot, self.series)


@dataclass(frozen=True, slots=True, repr=False)
class PlansView(Shown):
    """The open proposal, the front, the curves, the fit, and earlier plans."""

    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return plans.plans_view(self.snapshot)


@dataclass(frozen=True, slots=True, repr=False)
class WhyView(Shown):
    """Why a plan is proposed, or why none is, and what would change that."""

    explanation: Explanation
    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return why.why_view(self.explanation, self.snapshot)


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfView(Shown):
    """The predicted effect of plans, each with why it would be refused, if it would."""

    weighed: tuple[Weighed, ...]
    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return why.whatif_view(self.weighed, self.snapshot)


@dataclass(frozen=True, slots=True, repr=False)
class RunsView(Shown):
    """The runs in the history."""

    runs: tuple[JobRun, ...]

    def __iter__(self) -> Iterator[JobRun]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def view(self) -> View:
        """Return the content."""
        return history.runs_view(self.runs)


@dataclass(frozen=True, slots=True, repr=False)
class HistoryView(Shown):
    """One run: its speed, its decisions, and their outcomes."""

    history: RunHistory

    def view(self) -> View:
        """Return the content."""
        return history.history_view(self.history)


@dataclass(frozen=True, slots=True, repr=False)
class ScoresView(Shown):
    """How good predictions were."""

    scoreboard: Scoreboard

    def view(self) -> View:
        """Return the content."""
        return scores.scores_view(self.scoreboard)


@dataclass(frozen=True, slots=True, repr=False)
class DecisionView(Shown):
    """A decision, and its progress."""

    decision: Decision
    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return plans.decision_view(self.decision, self.snapshot)


def logs_title(job: str, node: str | None) -> str:
    """Return the title of log lines."""
    return f"{node} of {job}" if node else job


@dataclass(frozen=True, slots=True, repr=False)
class LogsView(Shown):
    """Lines that nodes wrote, the newest last."""

    name: str
    lines: tuple[LogLine, ...]

    def __iter__(self) -> Iterator[LogLine]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def view(self) -> View:
        """Return the content."""
        return logs.logs_view(self.name, self.lines)


@dataclass(frozen=True, slots=True, repr=False)
class Note(Shown):
    """A short message."""

    title: str
    text: str = ""

    def view(self) -> View:
        """Return the content."""
        return View(self.title, tuple(Paragraph(line) for line in self.text.splitlines() if line.strip()))


@dataclass(frozen=True, slots=True, repr=False)
class TextView(Shown):
    """A text, displayed verbatim."""

    title: str
    text: str

    def view(self) -> View:
        """Return the content."""
        return View(self.title, (Verbatim(self.text),))


@dataclass(frozen=True, slots=True, repr=False)
class ShardsView(Shown):
    """A job's account of its rows over time, and the shards that wait for a decision."""

    snapshot: JobSnapshot
    series: SeriesChunk | None = None

    def view(self) -> View:
        """Return the content."""
        quarantined = tuple(
            (
                f"{s.shard}",
                s.purpose.value,
                f"{s.epoch + 1}",
                f"{s.start:,} to {s.stop:,}",
                ", ".join(s.killed),
            )
            for s in self.snapshot.quarantined
        )
        head = ("shard", "to", "pass", "rows", "workers that it ended")
        over_time = CHARTS["shards"].static(self.snapshot, self.series)
        waiting = (Table("In quarantine", head, quarantined),) if quarantined else ()
        return View(
            f"Shards of {self.snapshot.title}", (over_time, status.shards_table(self.snapshot), *waiting)
        )


@dataclass(frozen=True, slots=True, repr=False)
class ConnectionView(Shown):
    """A cluster, its capacity, and the rights of the connected user."""

    description: str
    capacity: Capacity | DlroverError  # why nothing is known of it
    standing: ClusterAccess = NOTHING

    def view(self) -> View:
        """Return the content."""
        facts, rights = self.standing.facts, _allowed_blocks(self.standing)
        if isinstance(self.capacity, DlroverError):
            return View(
                self.description, (Facts(facts), Paragraph(str(self.capacity), Tone.WARNING), *rights)
            )
        c = self.capacity
        total = Facts((*facts, ("in all", f"{c.total_cpu:g} cores, {units.memory(c.total_memory_mib)}")))
        rows = tuple((f"{s.count}", f"{s.cpu:g}", units.memory(s.memory_mib)) for s in c.shapes)
        machines = Table("Machines", ("machines", "cores each", "memory each"), rows)
        return View(self.description, (total, machines, *rights))


def _allowed_blocks(access: ClusterAccess) -> tuple[Block, ...]:
    """Return the rights, and those to request; nothing where the cluster has no access control."""
    if not access.allowed:
        return ()
    rows = tuple((each.what, each.right, _verdict(each)) for each in access.allowed)
    table = Table("What you may do here", ("to", "rights to", "allowed"), rows)
    if not access.ask:
        return (table,)
    ask = "Jobs need more rights than you have here; give this to the administrator of the cluster."
    return (table, Paragraph(ask, Tone.WARNING), Verbatim(access.ask))


def _verdict(each: Allowed) -> str:
    if not each.missing:
        return "yes"
    return f"no: {', '.join(each.missing)}" + " (not needed)" * each.optional
