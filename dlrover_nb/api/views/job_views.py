"""What verbs and methods return: objects that display as text and as static HTML, in any front end.

The HTML holds inline SVG and tables only, so a saved notebook shows every plot and number with neither
kernel nor network. Nothing here imports panel or bokeh; live views are separate (`%dlrover show --live`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import InvalidValueError, JobFailedError, NotFoundError
from dlrover_nb.core.structs.job.cautions import cautions
from dlrover_nb.core.structs.job.fixed_roles import fixed_per_hour
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.deadline import span_words
from dlrover_nb.core.structs.plan.default_bounds import bounds_words
from dlrover_nb.core.why import answers
from dlrover_nb.widgets.blocks import Paragraph, Table, Tone, Verbatim, View
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.clusters.schema import schema_blocks
from dlrover_nb.widgets.jobs import logs, plans, status, why
from dlrover_nb.widgets.past import history, scores
from dlrover_nb.widgets.rows import columns as c
from dlrover_nb.widgets.rows.job_columns import JOBS
from dlrover_nb.widgets.rows.tables import Tables, Tabular, facts, listed, one

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dlrover_nb.core.client.past.history_queries import RunHistory
    from dlrover_nb.core.history import JobRun, Scoreboard
    from dlrover_nb.core.structs.decisions.decisions import Decision
    from dlrover_nb.core.structs.decisions.query_answers import Explanation, LogLine, Weighed
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.plan.bounds import PlanBounds
    from dlrover_nb.core.structs.plan.deadline import DeadlineOutlook
    from dlrover_nb.core.structs.views.schema import DataSchema
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.core.why import Answer, Question
    from dlrover_nb.widgets.blocks import Block


class Shown(Tabular):
    """Base of all of them: one `View`, rendered as text and as HTML, and tables of the same content."""

    __slots__ = ()
    is_verbatim = False  # whether its text is of others: a log, an exported document

    def view(self) -> View:
        """Return the content."""
        raise NotImplementedError

    def listing(self) -> View | None:
        """Return the table that a program reads in a pipe, a line for each row; None: it reads all of it."""
        return None

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:  # noqa: ARG002 - IPython's signature
        return self.view().mimebundle()

    def __str__(self) -> str:
        return self.view().text()

    __repr__ = __str__


@dataclass(frozen=True, slots=True, repr=False)
class JobsView(Shown):
    """The list of jobs; `others` are blocks of those that other tools manage."""

    jobs: tuple[JobSummary, ...]
    others: tuple[Block, ...] = ()

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
        jobs = self.candidates
        if not jobs:
            raise NotFoundError("no job here; start one with submit")
        if len(jobs) == 1:
            return jobs[0].name
        what = "jobs are here, none of which runs" if jobs[0].phase.is_final else "jobs run"
        names = ", ".join(j.name for j in jobs)
        raise InvalidValueError(f"{len(jobs)} {what}; name one of them: {names}")

    def view(self) -> View:
        """Return the content."""
        return status.jobs_view(self.jobs, self.others)

    def listing(self) -> View:
        """Return the table of jobs alone: a program reads one table, as in JSON."""
        return status.jobs_view(self.jobs)

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("jobs", JOBS, self.jobs)


@dataclass(frozen=True, slots=True, repr=False)
class StatusView(Shown):
    """The state of one job, with its telemetry where given."""

    snapshot: JobSnapshot
    series: SeriesChunk | None = None

    @property
    def phase(self) -> JobPhase:
        """The phase of the job."""
        return self.snapshot.phase

    def checked(self) -> StatusView:
        """Return it unless the job has failed.

        Raises
        ------
        JobFailedError
            When it has, with what the job said last.
        """
        if self.phase is JobPhase.FAILED:
            raise JobFailedError(
                f"job {self.snapshot.title} failed: {self.snapshot.message or 'see its logs'}"
            )
        return self

    def view(self) -> View:
        """Return the content."""
        return status.status_view(self.snapshot, self.series)

    def tables(self) -> Tables:
        """Return it as data."""
        return status.status_tables(self.snapshot)


@dataclass(frozen=True, slots=True, repr=False)
class PlansView(Shown):
    """The open proposal, the front, the curves, the fit, and earlier plans."""

    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return plans.plans_view(self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        snapshot = self.snapshot
        name, front = snapshot.spec.name, snapshot.front
        tables = {
            "proposals": c.PROPOSALS.table(snapshot.proposals),
            "front": c.FRONT.table(front.candidates if front else ()),
            "front_with_auc": c.FRONT.table(front.with_auc if front else ()),
            "outcomes": c.OUTCOMES.table((name, outcome) for outcome in snapshot.outcomes),
        }
        return Tables(one(c.OPEN_PROPOSAL, snapshot), tables, "proposals")


@dataclass(frozen=True, slots=True, repr=False)
class WhyView(Shown):
    """Why a plan is proposed, or why none is, and what would change that."""

    explanation: Explanation
    snapshot: JobSnapshot
    question: Question | None = None  # None: all

    @property
    def answers(self) -> tuple[Answer, ...]:
        """The answers to all questions, or to the one that was asked."""
        return answers(self.explanation, self.snapshot, self.question)

    def view(self) -> View:
        """Return the content."""
        return why.why_view(self.explanation, self.snapshot, self.question)

    def tables(self) -> Tables:
        """Return it as data."""
        e, replies = self.explanation, self.answers
        tables = {
            "answers": c.ANSWERS.table(replies),
            "numbers": c.NUMBERS.table((each.question, value) for each in replies for value in each.values),
            "marginals": c.MARGINALS.table(e.marginals),
            "evidence": c.EVIDENCE.table(e.evidence),
        }
        return Tables(one(c.WHY, e), tables)


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfView(Shown):
    """The predicted effect of plans, each with why it would be refused, if it would."""

    weighed: tuple[Weighed, ...]
    snapshot: JobSnapshot

    def view(self) -> View:
        """Return the content."""
        return why.whatif_view(self.weighed, self.snapshot)

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("plans", c.WHATIF, self.weighed)


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

    def listing(self) -> View:
        """Return the table of runs."""
        return self.view()

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("runs", c.RUNS, self.runs)


@dataclass(frozen=True, slots=True, repr=False)
class HistoryView(Shown):
    """One run: its speed, its decisions, and their outcomes."""

    history: RunHistory

    def view(self) -> View:
        """Return the content."""
        return history.history_view(self.history)

    def tables(self) -> Tables:
        """Return it as data."""
        past = self.history
        tables = {
            "proposals": c.PROPOSALS.table(past.proposals),
            "decisions": c.DECISIONS.table(past.decisions),
            "outcomes": c.OUTCOMES.table((past.run.job, outcome) for outcome in past.outcomes),
            "mitigations": c.actions(past.mitigations, past.decisions),
            "series": c.SERIES.table(past.series),
        }
        return Tables(one(c.RUNS, past.run), tables)


@dataclass(frozen=True, slots=True, repr=False)
class ScoresView(Shown):
    """How good predictions were."""

    scoreboard: Scoreboard

    def view(self) -> View:
        """Return the content."""
        return scores.scores_view(self.scoreboard)

    def tables(self) -> Tables:
        """Return it as data: of all jobs together (the head), and of each."""
        board = self.scoreboard
        tables = {"jobs": c.SCORES.table(board.jobs), "outcomes": c.OUTCOMES.table(board.outcomes)}
        return Tables(one(c.SCORES, (None, board.total)), tables, "jobs")


@dataclass(frozen=True, slots=True, repr=False)
class DecisionView(Shown):
    """A decision, and its progress."""

    decision: Decision
    snapshot: JobSnapshot
    change: tuple[tuple[str, str], ...] = ()  # what it restarts of an external job, by the nodes before it

    def view(self) -> View:
        """Return the content."""
        return plans.decision_view(self.decision, self.snapshot, self.change)

    def tables(self) -> Tables:
        """Return it as data."""
        return Tables(one(c.DECIDED, (self.snapshot.spec.name, self.decision)))


def logs_title(job: str, node: str | None) -> str:
    """Return the title of log lines."""
    return f"{node} of {job}" if node else job


@dataclass(frozen=True, slots=True, repr=False)
class LogsView(Shown):
    """Lines that nodes wrote, the newest last."""

    is_verbatim = True
    name: str
    lines: tuple[LogLine, ...]

    def __iter__(self) -> Iterator[LogLine]:
        return iter(self.lines)

    def __len__(self) -> int:
        return len(self.lines)

    def view(self) -> View:
        """Return the content."""
        return logs.logs_view(self.name, self.lines)

    def tables(self) -> Tables:
        """Return it as data."""
        return listed("lines", c.LOGS, self.lines)


@dataclass(frozen=True, slots=True, repr=False)
class Note(Shown):
    """A short message, and the file it speaks of, if any."""

    title: str
    text: str = ""
    path: str | None = None

    def view(self) -> View:
        """Return the content."""
        return View(self.title, tuple(Paragraph(line) for line in self.text.splitlines() if line.strip()))

    def tables(self) -> Tables:
        """Return it as data."""
        return facts(title=self.title, text=self.text, path=self.path)


@dataclass(frozen=True, slots=True, repr=False)
class SubmittedView(Shown):
    """A job that was submitted a moment ago, and how to follow it.

    Where it is known, also which plans it may be given on its cluster, and what it took of its data.
    """

    spec: JobSpec
    follow: str = ""
    schema: DataSchema | None = None
    bounds: PlanBounds | None = None
    deadline: DeadlineOutlook | None = None

    def view(self) -> View:
        """Return the content."""
        lines = (f"{self.spec.plan}; mode {self.spec.mode}", self._bounds, self.follow)
        schema_parts = () if self.schema is None else schema_blocks(self.schema)
        paragraphs = (*(Paragraph(line) for line in lines if line), *self._budget(), *self._deadline())
        warnings = [Paragraph(text, Tone.WARNING) for text in self._cautions]
        return View(f"Submitted {self.spec.name}", (*paragraphs, *warnings, *schema_parts))

    @property
    def doubts(self) -> tuple[str, ...]:
        """What looks like a mistake in job and data, a sentence each; what was guessed is said before."""
        return self._cautions + (() if self.schema is None else self.schema.warnings)

    @property
    def _cautions(self) -> tuple[str, ...]:
        n_train = None if self.schema is None else self.schema.n_train
        return tuple(filter(None, (self.spec.exchange.warning, *cautions(self.spec, n_train))))

    def tables(self) -> Tables:
        """Return it as data."""
        columns = () if self.schema is None else self.schema.columns
        return Tables(one(c.SUBMITTED, self.spec), {"columns": c.COLUMNS.table(columns)})

    def _budget(self) -> tuple[Paragraph, ...]:
        """Say how long the total budget lasts with the first plan; nothing without one."""
        spec, plan = self.spec, self.spec.plan
        per_hour = spec.prices.per_hour(plan.total_cpu, plan.total_memory_mib, plan.total_gpu)
        if spec.budget_total is None or per_hour is None or per_hour + fixed_per_hour(spec) == 0:
            return ()
        cost = per_hour + fixed_per_hour(spec)
        lasts = span_words(spec.budget_total / cost * 3600)
        limit = f"{spec.budget_total:,.6g} {spec.prices.currency}"
        before = spec.start_from is not None and spec.start_from.rows
        less = ", minus what its rows have cost so far" if before else ""
        words = f"it lasts {lasts} with this plan, at {cost:.4g} an hour{spec.prices.note}{less}"
        return (Paragraph(f"Total budget {limit}: {words}"),)

    def _deadline(self) -> tuple[Paragraph, ...]:
        """Say what can be promised of the deadline, as a warning where no plan meets it."""
        if self.spec.due_s(0.0) is None:
            return ()
        if self.deadline is None:
            return (Paragraph("Deadline: the job's speed is not measured yet; its status will say more."),)
        tone = Tone.PLAIN if self.deadline.is_feasible else Tone.WARNING
        return (Paragraph(f"Deadline {self.deadline.words}", tone),)

    @property
    def _bounds(self) -> str:
        """Which plans may be proposed; nothing where the user named all bounds."""
        limits = self.spec.bounds
        if self.bounds is None or not limits.open:
            return ""
        words = bounds_words(limits, self.bounds)
        return f"{words[0].upper()}{words[1:]}"


@dataclass(frozen=True, slots=True, repr=False)
class TextView(Shown):
    """A text, displayed verbatim."""

    is_verbatim = True
    title: str
    text: str

    def view(self) -> View:
        """Return the content."""
        return View(self.title, (Verbatim(self.text),))

    def tables(self) -> Tables:
        """Return it as data."""
        return facts(title=self.title, text=self.text)


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
            f"Shards of {self.snapshot.title}",
            (over_time, status.shards_table(self.snapshot), *waiting, *self._skipped()),
        )

    def tables(self) -> Tables:
        """Return it as data."""
        snapshot = self.snapshot
        tables = {
            "shards": c.SHARDS.table((("train", snapshot.train), ("evaluate", snapshot.evaluate))),
            "quarantine": c.QUARANTINE.table(snapshot.quarantined),
            "skipped_batches": c.SKIPPED_BATCHES.table(snapshot.skipped_batches),
        }
        return Tables(one(c.JOB, snapshot), tables, "shards")

    def _skipped(self) -> tuple[Table, ...]:
        lines = tuple(
            (f"{batch.shard}", f"{batch.n_row}", f"{batch.first:,} to {batch.last:,}", batch.reason)
            for batch in self.snapshot.skipped_batches
        )
        head = ("shard", "rows", "between", "why")
        return (Table("Batches that were skipped", head, lines),) if lines else ()
