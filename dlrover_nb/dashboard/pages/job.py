"""The page *Job*: one job with all that a person needs to decide about it, and the forms to do so.

Who it is and how it goes, its sentence and the buttons come first, then the live charts, then all else.

What is decided is written by the server, so it works in any browser and from any link. The live charts are
the views of a notebook, in a frame of their own: they need Panel's scripts, which the rest of the page does
not trust (`headers`), and they come back by themselves after a restart without the page being loaded again,
so that a reason which is being typed is kept. Rejected: the whole page as a Panel document, for both reasons.
The server writes one chart too: it stands there until the live ones are drawn, and where no script runs.

What a person may not do is not on their page. That is a courtesy: `/do` refuses it anyway.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.errors import BackendError, DlroverError, NotFoundError
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.dashboard.forms.flash import flash_of, lines_html
from dlrover_nb.dashboard.forms.markup import ActForm, answer_form, seen_fields, size_fields
from dlrover_nb.dashboard.job_parts import drift, since
from dlrover_nb.dashboard.job_parts.change import change_blocks, proposal_blocks
from dlrover_nb.dashboard.job_parts.stragglers import stragglers_html
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.jobs import job_link
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, Verbatim
from dlrover_nb.widgets.charts import CHARTS
from dlrover_nb.widgets.jobs import again
from dlrover_nb.widgets.jobs.headline import answer_labels, headline
from dlrover_nb.widgets.jobs.plans import none_open
from dlrover_nb.widgets.jobs.review_card import undo_words
from dlrover_nb.widgets.jobs.status import commands, summary_facts
from dlrover_nb.widgets.past.audit import what

if TYPE_CHECKING:
    from markupsafe import Markup

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot, SeriesChunk
    from dlrover_nb.dashboard.forms.markup import May, SizeField
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.widgets.blocks import Block

N_AUDIT = 15
_STOPS = {
    Action.FINISH: "Finish now: no more rows are trained, the model is evaluated, and the job succeeds.",
    Action.STOP: "Stop: the job ends at once, and its model is what the last checkpoint holds.",
}


def snapshot_of(visit: Visit, name: str) -> JobSnapshot:
    """Return the newest snapshot of a job, as the person of the visit.

    Raises
    ------
    NotFoundError
        When no job is named, or there is none of that name.
    NotAllowedError
        When they may not view it.
    """
    if not name:
        raise NotFoundError("no job is named; choose one on the page Jobs")
    handle = visit.team.job(visit.cluster, name, Asker(visit.person, Entry.DASHBOARD))
    return handle.with_short_timeout.snapshot()


def body(visit: Visit) -> Markup:
    """Return the page of the job that the address names."""
    snapshot = snapshot_of(visit, visit.query.get("name", ""))
    may, news, name = _rights(visit, snapshot), flash_of(visit), snapshot.spec.name
    return render(
        "job.html",
        visit=visit,
        snapshot=snapshot,
        name=name,
        lead=headline(snapshot),
        modes=tuple(Mode),
        news=lines_html(news),
        still=[CHARTS["throughput"].static(snapshot, _series(visit, snapshot))],
        copies=again.copies(snapshot.spec),
        not_written=again.NOT_WRITTEN,
        live=f"{visit.root}/live?{urlencode({'cluster': visit.cluster, 'job': name})}",
        proposal=_proposal_part(visit, snapshot, may),
        stragglers=stragglers_html(visit, snapshot, may, news),
        since=_since(visit, snapshot),
        own=_own_part(visit, snapshot, may),
        state=[Facts(summary_facts(snapshot))],
        drift=_drift(visit, snapshot),
        audit=[_audit(visit, snapshot)],
        lines=[Verbatim("\n".join(lines_to_copy(visit.cluster, snapshot)))],
        ends=_ends(visit, snapshot, may),
    )


def _series(visit: Visit, snapshot: JobSnapshot) -> SeriesChunk | None:
    """Return the telemetry for the chart that stands until the live one is drawn; None: not known."""
    if snapshot.series is not None:
        return snapshot.series
    asker = Asker(visit.person, Entry.DASHBOARD)
    try:
        return visit.team.job(visit.cluster, snapshot.spec.name, asker).with_short_timeout.series()
    except DlroverError:  # the page is worth more than its first picture
        return None


def _rights(visit: Visit, snapshot: JobSnapshot) -> May:
    """Return whether the person may do something to this job now; none of it to one that has ended."""
    owner, is_over = snapshot.spec.owner, snapshot.phase.is_final

    def may(action: Action) -> bool:
        return not is_over and visit.team.may(visit.person, action, visit.cluster, owner=owner)

    return may


def _since(visit: Visit, snapshot: JobSnapshot) -> tuple[Block, ...]:
    """Return what is new to the person, and note that they have looked."""
    notes, person = visit.team.notes, visit.person.name
    name = _note_name(visit, snapshot.spec.name)
    looks = notes.find(person, since.KIND, name)
    now_s = visit.team.now_s()
    look = since.look_of(looks[0] if looks else None, now_s, snapshot.at_s)
    with suppress(BackendError):  # a database that takes nothing now must not hide the job
        notes.keep(Note(person, since.KIND, name, now_s, look.text))
    return since.since_blocks(snapshot, look.since_s)


def _note_name(visit: Visit, job: str) -> str:
    return f"{job} {visit.cluster}"


@dataclass(frozen=True, slots=True)
class _ProposalPart:
    """The open proposal, and the forms that this person may answer it with.

    `changes`: the plan now and the plan proposed; `blocks`: all else that is known of it.
    """

    blocks: tuple[Block, ...]
    changes: tuple[Block, ...] = ()
    name: str = ""
    answer: ActForm | None = None
    override: ActForm | None = None
    sizes: tuple[SizeField, ...] = ()


def _proposal_part(visit: Visit, snapshot: JobSnapshot, may: May) -> _ProposalPart:
    proposal = snapshot.open_proposal
    if proposal is None or snapshot.phase.is_final:
        return _ProposalPart((Paragraph(none_open(snapshot)),))
    override = None
    if may(Action.OVERRIDE):
        fields, label = seen_fields(visit, snapshot, proposal=proposal.id), f"Override {proposal.id}"
        override = ActForm(label, fields, (("override", label),))
    return _ProposalPart(
        proposal_blocks(proposal, snapshot),
        change_blocks(proposal, snapshot),
        proposal.id,
        answer_form(visit, snapshot, proposal.id, may, answer_labels(proposal)),
        override,
        size_fields(proposal.candidate.plan),
    )


@dataclass(frozen=True, slots=True)
class _OwnPart:
    """The forms for changes that answer no proposal; None: the person may not, or nothing can be undone."""

    undo: ActForm | None
    undo_words: str
    mode: ActForm | None
    budget: ActForm | None
    limit: str
    scale: ActForm | None
    sizes: tuple[SizeField, ...]


def _own_part(visit: Visit, snapshot: JobSnapshot, may: May) -> _OwnPart:
    def form(action: Action, label: str, press: str) -> ActForm | None:
        fields = seen_fields(visit, snapshot)
        return ActForm(label, fields, ((str(action), press),)) if may(action) else None

    total = snapshot.spec.budget_total
    return _OwnPart(
        _undo_form(visit, snapshot) if may(Action.UNDO) else None,
        undo_words(snapshot),
        form(Action.MODE, "Mode", "Set mode"),
        form(Action.BUDGET, "Budget", "Set budget"),
        "" if total is None else f"{total:g}",
        form(Action.SCALE, "Scale", "Scale to this plan"),
        size_fields(snapshot.target),
    )


def _undo_form(visit: Visit, snapshot: JobSnapshot) -> ActForm | None:
    if snapshot.undo is None:
        return None
    fields = seen_fields(visit, snapshot) | {"decision": snapshot.undo.undoes}
    fields |= {"cancels": "yes"} if snapshot.undo_cancels else {}
    label = f"{'Cancel' if snapshot.undo_cancels else 'Undo'} {snapshot.undo.undoes}"
    return ActForm(label, fields, (("undo", label),))


def _drift(visit: Visit, snapshot: JobSnapshot) -> tuple[Block, ...]:
    name = _note_name(visit, snapshot.spec.name)
    files = visit.team.notes.find(visit.person.name, drift.KIND, name)
    try:
        return drift.drift_blocks(snapshot, files[0].text if files else None)
    except DlroverError as error:
        return (Paragraph(f"The file cannot be compared: {error}", Tone.WARNING),)


def _audit(visit: Visit, snapshot: JobSnapshot) -> Table:
    """Return the newest commands about the job, of all people and entries."""
    rows = tuple(
        (
            units.clock(row.at_s),
            f"{row.person} for {row.first}" if row.first else row.person,
            str(row.entry),
            what(row),
            f"{row.stage}{row.answer and ': ' + row.answer}",
            row.why,
        )
        for row in (each.row for each in visit.team.audit.newest(N_AUDIT, job=snapshot.spec.name))
        if row.run in {"", snapshot.run}
    )
    return Table("Newest commands", ("when", "who", "through", "what", "became", "reason"), rows)


def lines_to_copy(cluster: str, snapshot: JobSnapshot) -> tuple[str, ...]:
    """Return the lines that do the same in a notebook."""
    name, proposal = snapshot.spec.name, snapshot.open_proposal
    answers = () if proposal is None or snapshot.phase.is_final else commands(name, proposal)
    if snapshot.open_mitigation is not None and not snapshot.phase.is_final:
        answers += mitigations.commands(name, snapshot.open_mitigation)
    return (
        f"%dlrover connect {cluster}",
        f"%dlrover connect --attach {name}",
        f"%dlrover show {name}",
        *answers,
    )


def _ends(visit: Visit, snapshot: JobSnapshot, may: May) -> list[tuple[str, str]]:
    """Return the addresses where the job is ended, and the word for each."""
    place = {"cluster": visit.cluster, "name": snapshot.spec.name}
    return [
        (f"confirm?{urlencode(place | {'action': str(action)})}", str(action).capitalize())
        for action in _STOPS
        if may(action)
    ]


def confirm_body(visit: Visit) -> Markup:
    """Return the page that asks once more before a job is ended."""
    snapshot = snapshot_of(visit, visit.query.get("name", ""))
    may, name = _rights(visit, snapshot), snapshot.spec.name
    action = next((each for each in _STOPS if each == visit.query.get("action")), None)
    form, words = None, "Nothing here can be confirmed: the job has ended, or it is not yours to end."
    if action is not None and may(action):
        press = (str(action), f"{str(action).capitalize()} {name}")
        form = ActForm(f"{action} {name}", seen_fields(visit, snapshot), (press,))
        share = share_done(snapshot.train)
        words = _STOPS[action] + ("" if share is None else f" It has trained {units.percent(share)}.")
    return render(
        "confirm.html",
        root=visit.root,
        name=name,
        warning=Paragraph(words, Tone.WARNING),
        form=form,
        back=job_link(visit.cluster, name),
    )


PAGE = Page("job", "Job", body, is_listed=False, subject="name")
CONFIRM = Page("confirm", "End a job", confirm_body, is_listed=False)
