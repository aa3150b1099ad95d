"""What a list of jobs can say of a job: one table of columns, of which every list draws some.

The list of a notebook and of the command line, the live view of all jobs and the dashboard draw the same
columns, so that a job reads the same wherever it is listed; ``--json`` and `to_frame` have the values behind
all of them. A new column is a row of `COLUMNS`, and its key in the lists that have room for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.widgets import units
from dlrover_nb.widgets.rows import job_cells as cells
from dlrover_nb.widgets.rows.columns import BAND, PLAN, through
from dlrover_nb.widgets.rows.job_cells import EMPTY, Cell, Liveness
from dlrover_nb.widgets.rows.job_sentence import job_sentence
from dlrover_nb.widgets.rows.tables import Columns, fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from dlrover_nb.core.structs.views.summary import JobSummary
    from dlrover_nb.widgets.rows.job_cells import JobLine


@dataclass(frozen=True, slots=True)
class JobColumn:
    """A column of lists of jobs.

    Parameters
    ----------
    key
        Its name in addresses and events.
    head
        Its title, with the unit of its numbers.
    cell
        The words of a job's cell, and what they are sorted by.
    data
        The values behind the words, by their keys in JSON and in frames.
    is_number
        Whether the words begin with a number: it stands to the right, and is what the column is sorted by.
    least
        The liveness below which the cell is empty.
    width
        Share of the dashboard's width, beside those of its other columns: fixed, so that a changed cell moves
        no other. 0: it is drawn below the row.
    """

    key: str
    head: str
    cell: Callable[[JobLine], Cell]
    data: Mapping[str, Callable[[JobSummary], object]]
    is_number: bool = False
    least: Liveness = Liveness.ENDED
    width: int = 0

    @property
    def title(self) -> str:
        """The title with a capital, where titles of tables have one."""
        return self.head[0].upper() + self.head[1:]


_SILENT, _ANSWERING = Liveness.SILENT, Liveness.ANSWERING
COLUMNS = (
    JobColumn("job", "job", lambda line: Cell(line.job.name), fields("job=name"), width=14),
    JobColumn("state", "state", cells.state_cell, fields("phase live simulated message"), width=11),
    JobColumn("owner", "owner", lambda line: Cell(line.job.owner or units.MISSING), fields("owner"), width=8),
    JobColumn(
        "tags",
        "tags",
        lambda line: Cell(", ".join(line.job.tags) or units.MISSING),
        {"tags": lambda job: ", ".join(job.tags)},
        width=8,
    ),
    JobColumn("started", "started", cells.started_cell, fields("started_at_s ended_at_s"), width=7),
    JobColumn(
        "plan",
        "plan",
        lambda line: Cell(line.job.plan.short if line.job.plan else units.MISSING),
        through("plan", PLAN),
        width=10,
    ),
    JobColumn(
        "mode",
        "decides",
        lambda line: Cell(str(line.job.outlook.mode or units.MISSING)),
        fields("mode=outlook.mode"),
        least=_SILENT,
        width=6,
    ),
    JobColumn(
        "rate",
        "samples/s",
        lambda line: Cell(units.number(line.job.samples_per_s)),
        fields("samples_per_s"),
        is_number=True,
        least=_ANSWERING,
        width=7,
    ),
    JobColumn(
        "quality",
        "quality",
        cells.quality_cell,
        {**fields("loss=outlook.loss"), **through("outlook.evaluation", fields("auc log_loss"))},
        width=7,
    ),
    JobColumn(
        "versus",
        "against prediction",
        cells.versus_cell,
        through("outlook.predicted", BAND),
        least=_ANSWERING,
        width=9,
    ),
    JobColumn(
        "memory",
        "memory left",
        cells.memory_cell,
        fields("memory_left=outlook.memory_left full_in_s=outlook.full_in_s"),
        is_number=True,
        least=_SILENT,
        width=8,
    ),
    JobColumn(
        "warning",
        "memory warning",
        lambda line: Cell("; ".join(line.job.memory_needs) or units.MISSING),
        {"memory_warning": lambda job: "; ".join(job.memory_needs)},
        least=_SILENT,
    ),
    JobColumn(
        "cost",
        "cost per hour",
        cells.cost_cell,
        fields(
            "cost_per_hour=outlook.cost_per_hour currency=outlook.currency spent=outlook.spent "
            "budget_total=outlook.budget_total"
        ),
        is_number=True,
        least=_SILENT,
        width=8,
    ),
    JobColumn(
        "done",
        "trained",
        lambda line: Cell(units.percent(line.job.done)),
        fields("done"),
        is_number=True,
        width=6,
    ),
    JobColumn(
        "ends",
        "ends in",
        cells.ends_cell,
        fields("left_s in_time=outlook.in_time"),
        is_number=True,
        least=_SILENT,
        width=6,
    ),
    JobColumn(
        "proposal",
        "proposal",
        cells.proposal_cell,
        fields("open_proposal open_mitigation"),
        least=_SILENT,
        width=10,
    ),
    JobColumn(
        "needs",
        "needs",
        cells.needs_cell,
        {"needs": lambda job: cells.needs_words(cells.needs(job))},
        width=9,
    ),
    JobColumn("sentence", "in a sentence", cells.sentence_cell, {"sentence": job_sentence}),
)
JOBS: Columns[JobSummary] = Columns({name: get for column in COLUMNS for name, get in column.data.items()})


def _drawn(keys: str) -> tuple[JobColumn, ...]:
    by_key = {column.key: column for column in COLUMNS}
    return tuple(by_key[key] for key in keys.split())


NOTEBOOK = _drawn("job state owner started plan rate done needs")  # and the command line
LIVE = _drawn("job state plan rate done ends needs warning")
DASHBOARD = _drawn(
    "job state needs started owner tags plan mode rate quality versus memory cost done ends proposal sentence"
)
COMPARED = _drawn("state sentence owner started plan mode rate quality versus memory cost done ends")


def job_cells(columns: Iterable[JobColumn], line: JobLine) -> tuple[Cell, ...]:
    """Return the cells of a job."""
    liveness = line.liveness
    return tuple([column.cell(line) if column.least <= liveness else EMPTY for column in columns])


def whole_cells(columns: Iterable[JobColumn], line: JobLine) -> tuple[Cell, ...]:
    """Return the cells of a job, each with its reason: of a list that has no room below itself."""
    return tuple([cell.whole if cell.why else cell for cell in job_cells(columns, line)])
