"""The page *Decisions*: the audit, one line per command: who asked for what, and what became of it.

A prediction stands beside what was measured later, so that a reader sees what a decision was worth: the
speed on the host as it was predicted for, by which predictions are scored, then the speed as it ran. People
see the commands about jobs of namespaces in which they have a role. The whole filter is in the address; pages
go by the number of a row, so a link to one shows the same lines tomorrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.commands.since import parse_since
from dlrover_nb.core.errors import InvalidValueError, NotAllowedError
from dlrover_nb.core.structs.cluster.host_load import FELT_SHARE
from dlrover_nb.core.structs.decisions.audited import AuditFilter
from dlrover_nb.core.structs.decisions.commands import Action, Entry, Stage
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.chain_state import chain_state
from dlrover_nb.dashboard.pages.lists import Cell, Field, Filter, Listing, address
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Tone
from dlrover_nb.widgets.past.audit import predicted, what, who

if TYPE_CHECKING:
    from collections.abc import Mapping
    from enum import StrEnum
    from typing import TypeVar

    from markupsafe import Markup

    from dlrover_nb.core.history import HistoryStore
    from dlrover_nb.core.history.audit.trail import AuditStore
    from dlrover_nb.core.structs.decisions.audited import AuditedCommand
    from dlrover_nb.core.structs.decisions.commands import AuditRow
    from dlrover_nb.core.structs.decisions.decisions import Outcome
    from dlrover_nb.core.structs.decisions.people import Person
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.dashboard.pages.chain_state import ChainState

    E = TypeVar("E", bound=StrEnum)

N_LINE = 50
MOST_PAGES = 20  # of the audit that are read for one of ours, where most are of other namespaces
HEAD = (
    "Row", "Asked", "By", "Job", "Command", "Why", "Predicted", "Measured, host as predicted",
    "Measured", "Outcome",
)  # fmt: skip
_STAGES = {
    Stage.ASKED: "asked, outcome unknown",
    Stage.DONE: "done",
    Stage.REFUSED: "refused",
    Stage.FAILED: "failed",
    Stage.WAITING: "waits for a second person",
}
FIELDS = (
    Field("job", "Job"),
    Field("person", "Person"),
    Field("entry", "Through", tuple((str(each), str(each)) for each in Entry)),
    Field("action", "Action", tuple((str(each), str(each)) for each in Action)),
    Field("stage", "Outcome", tuple((str(stage), words) for stage, words in _STAGES.items())),
    Field("since", "Since", hint="24h or 2026-05-01"),
)


def body(visit: Visit) -> Markup:
    """Return the filter, the commands, and the state of the chain."""
    check_reader(visit.person)
    where = filter_of(visit.query, visit.team.now_s())
    before = whole(visit.query, "before")
    commands, older = visible(visit.team.audit, visit.person, where, before=before)
    values = {field.name: visit.query.get(field.name, "") for field in FIELDS}
    measured = Measurements(visit.team.history)
    rows = [_row(each, measured, visit) for each in commands]
    title = "Commands, newest first" + (f", before row {before}" if before else "")
    path, keep = f"{visit.root}/decisions", _cluster(visit)
    return render(
        "decisions.html",
        filter=Filter(path, FIELDS, values, keep),
        listing=Listing(title, HEAD, rows),
        pages=_pages(path, {**keep, **values}, before=before, older=older),
        chain=_chain(chain_state(visit.team, again="again" in visit.query)),
        again=address(path, {**keep, "again": "1"}),
        exports=_exports(visit.root, values),
    )


def filter_of(query: Mapping[str, str], now_s: float) -> AuditFilter:
    """Return the filter that an address holds.

    Raises
    ------
    InvalidValueError
        When a part is none of those that there are.
    """
    return AuditFilter(
        job=query.get("job") or None,
        person=query.get("person") or None,
        entry=_one_of(Entry, query, "entry"),
        action=_one_of(Action, query, "action"),
        stage=_one_of(Stage, query, "stage"),
        since_s=parse_since(query["since"], now_s) if query.get("since") else None,
    )


def check_reader(person: Person) -> None:
    """Refuse a person who has no role anywhere."""
    if not person.grants:
        raise NotAllowedError("the audit needs the role viewer, but you have no role; ask an administrator")


def may_read(person: Person, row: AuditRow) -> bool:
    """Whether a person has a role where the job of a row ran."""
    return person.role_in(row.namespace) is not None


def visible(
    store: AuditStore, person: Person, where: AuditFilter, *, before: int | None
) -> tuple[list[AuditedCommand], int | None]:
    """Return a page of what a person may read, and the number before which the next page begins.

    The number is None where there is no more. A page may be short where most of what was read is of other
    namespaces.
    """
    commands: list[AuditedCommand] = []
    for _ in range(MOST_PAGES):
        page = store.search(where, n_command=N_LINE, before=before)
        for each in page:
            before = each.seq
            if may_read(person, each.asked):
                commands.append(each)
                if len(commands) == N_LINE:
                    return commands, before
        if len(page) < N_LINE:
            return commands, None
    return commands, before


class Measurements:
    """What was measured of decisions, each run's read once."""

    def __init__(self, history: HistoryStore) -> None:
        self._history = history
        self._runs: dict[str, dict[str, Outcome]] = {}

    def of(self, command: AuditedCommand) -> Outcome | None:
        """Return the outcome of the decision that a command made; None where nothing was measured."""
        row = command.last
        if row.stage is not Stage.DONE or not row.run or not row.answer:
            return None
        if row.run not in self._runs:
            outcomes = self._history.outcomes(row.job, run=row.run)
            self._runs[row.run] = {each.decision: each for each in outcomes}
        return self._runs[row.run].get(row.answer)


def comparable_words(outcome: Outcome | None) -> str:
    """Return what was measured, put on the host as it was predicted for, and whether the prediction held."""
    if outcome is None:
        return units.MISSING
    band = {True: ", inside the band", False: ", outside the band", None: ""}[outcome.inside_band]
    return f"{units.rate(outcome.comparable_samples_per_s)}{band}"


def measured_words(outcome: Outcome | None) -> str:
    """Return what was measured as it ran, and what other work on the host took meanwhile."""
    if outcome is None:
        return units.MISSING
    share = outcome.host_share
    beside = f", other work took {units.percent(share)} of the host" if share >= FELT_SHARE else ""
    return f"{units.rate(outcome.measured_samples_per_s)}{beside}"


def _row(command: AuditedCommand, measured: Measurements, visit: Visit) -> tuple[Cell, ...]:
    row, outcome = command.asked, measured.of(command)
    job = address(f"{visit.root}/job", {**_cluster(visit), "name": row.job})
    return (
        Cell(f"{command.seq}", is_number=True),
        Cell(units.clock(row.at_s)),
        Cell(who(row)),
        Cell(row.job, job),
        Cell(what(row)),
        Cell(row.why or units.MISSING),
        Cell(predicted(row)),
        Cell(comparable_words(outcome)),
        Cell(measured_words(outcome)),
        Cell(command.outcome),
    )


def _pages(
    path: str, query: Mapping[str, str], *, before: int | None, older: int | None
) -> list[tuple[str, str]]:
    """Return the words and the address of each link to another page."""
    pages = [("Newest", address(path, query))] if before else []
    if older is not None:
        pages.append(("Older", address(path, {**query, "before": f"{older}"})))
    return pages


def _chain(state: ChainState) -> list[Paragraph]:
    tone = Tone.FAILED if state.faults else Tone.PLAIN
    return [Paragraph(state.words, tone), *(Paragraph(each, Tone.WARNING) for each in state.faults)]


def _exports(root: str, values: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the words and the address of each file."""
    query = {name: value for name, value in values.items() if name != "stage"}
    forms = (("jsonl", "JSON lines"), ("csv", "CSV"))
    return [(words, address(f"{root}/decisions.{form}", query)) for form, words in forms]


def _cluster(visit: Visit) -> dict[str, str]:
    return {"cluster": visit.query["cluster"]} if "cluster" in visit.query else {}


def _one_of(kind: type[E], query: Mapping[str, str], name: str) -> E | None:
    value = query.get(name, "")
    if value and value not in {*kind}:
        raise InvalidValueError(f"{name} must be one of {', '.join(kind)}, got {shown(value)}; choose one")
    return kind(value) if value else None


def whole(query: Mapping[str, str], name: str) -> int | None:
    """Return a whole number above zero of an address; `InvalidValueError` where it is none."""
    value = query.get(name, "")
    if value and not (value.isdecimal() and value.isascii() and len(value) < 16):
        raise InvalidValueError(f"{name} must be the number of a row, got {shown(value)}; leave it out")
    return int(value) if value else None


PAGE = Page("decisions", "Decisions", body)
