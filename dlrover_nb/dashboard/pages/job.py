"""The page *Job*: one job with all that a person needs to decide about it, and the forms to do so.

What is decided is written by the server, so it works in any browser and from any link. The live charts are
the views of a notebook, in a frame of their own: they need Panel's scripts, which the rest of the page does
not trust (`headers`), and they come back by themselves after a restart without the page being loaded again,
so that a reason which is being typed is kept. Rejected: the whole page as a Panel document, for both reasons.

What a person may not do is not on their page. That is a courtesy: `/do` refuses it anyway.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.errors import BackendError, DlroverError, NotFoundError
from dlrover_nb.core.history.stores.notes import Note
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Entry
from dlrover_nb.core.structs.job.spec_choices import Mode
from dlrover_nb.core.structs.views.summary import share_done
from dlrover_nb.dashboard.forms.flash import flash_of, lines_html
from dlrover_nb.dashboard.forms.markup import (
    act_form,
    button,
    hidden,
    reason_field,
    seen_fields,
    sizes_fields,
)
from dlrover_nb.dashboard.job_parts import drift, since
from dlrover_nb.dashboard.job_parts.change import proposal_blocks
from dlrover_nb.dashboard.job_parts.stragglers import stragglers_html
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.jobs import head_html, job_link
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Table, Tone, Verbatim, block_html, escape
from dlrover_nb.widgets.jobs.plans import none_open
from dlrover_nb.widgets.jobs.review import undo_words
from dlrover_nb.widgets.jobs.status import commands, summary_facts
from dlrover_nb.widgets.past.audit import what

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
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


def body(visit: Visit) -> str:
    """Return the page of the job that the address names."""
    snapshot = snapshot_of(visit, visit.query.get("name", ""))
    may, news = _rights(visit, snapshot), flash_of(visit)
    parts = (
        _part("Proposal", _proposal_html(visit, snapshot, may)),
        _part("Stragglers", stragglers_html(visit, snapshot, may, news)),
        _part("Since you last looked", blocks_html(_since(visit, snapshot))),
        _part("Change it yourself", _own_html(visit, snapshot, may)),
        _part("State", blocks_html((Facts(summary_facts(snapshot)),))),
        _part("Drift", _drift_html(visit, snapshot)),
        _part("On record", blocks_html((_audit(visit, snapshot),))),
        _part("In a notebook", blocks_html((Verbatim("\n".join(lines_to_copy(visit.cluster, snapshot))),))),
        _part("End", _end_html(visit, snapshot, may)),
    )
    name = snapshot.spec.name
    return (
        head_html(visit, ("job.js",))
        + lines_html(news)
        + f'<div id="job" data-cluster="{escape(visit.cluster)}" data-job="{escape(name)}">'
        f'<h2>{escape(snapshot.title)}: {escape(snapshot.phase)}</h2><p id="stale" class="jobs-stale" '
        'role="status" hidden></p><p id="news" class="jobs-news" role="status" aria-live="polite"></p>'
        f'{_live_html(visit, name)}<div class="job-grid">{"".join(parts)}</div></div>'
    )


def _rights(visit: Visit, snapshot: JobSnapshot) -> Callable[[Action], bool]:
    """Return whether the person may do something to this job now; none of it to one that has ended."""
    owner, is_over = snapshot.spec.owner, snapshot.phase.is_final

    def may(action: Action) -> bool:
        return not is_over and visit.team.may(visit.person, action, visit.cluster, owner=owner)

    return may


def blocks_html(blocks: Iterable[Block]) -> str:
    """Return blocks under a heading of the page."""
    return "".join(block_html(block, level=3) for block in blocks)


def _part(title: str, content: str) -> str:
    if not content:
        return ""
    return (
        f'<section class="job-part" aria-label="{escape(title)}"><h2>{escape(title)}</h2>{content}</section>'
    )


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


def _proposal_html(visit: Visit, snapshot: JobSnapshot, may: Callable[[Action], bool]) -> str:
    proposal = snapshot.open_proposal
    if proposal is None:
        return blocks_html((Paragraph(none_open(snapshot)),))
    fields = seen_fields(visit, snapshot, proposal=proposal.id)
    buttons = "".join(
        button(str(action), f"{str(action).capitalize()} {proposal.id}")
        for action in (Action.ACCEPT, Action.REJECT)
        if may(action)
    )
    answer = (
        act_form(f"Answer {proposal.id}", fields, f'<div class="form-row">{reason_field()}{buttons}</div>',
                 root=visit.root)
        if buttons else ""
    )  # fmt: skip
    return blocks_html(proposal_blocks(proposal, snapshot)) + answer + _override_html(visit, snapshot, may)


def _override_html(visit: Visit, snapshot: JobSnapshot, may: Callable[[Action], bool]) -> str:
    proposal = snapshot.open_proposal
    if proposal is None or not may(Action.OVERRIDE):
        return ""
    content = (
        f"{sizes_fields(proposal.candidate.plan)}"
        f'<div class="form-row">{reason_field()}{button("override", f"Override {proposal.id}")}</div>'
    )
    fields = seen_fields(visit, snapshot, proposal=proposal.id)
    form = act_form(f"Override {proposal.id}", fields, content, root=visit.root)
    return f"<details><summary>Apply another plan instead of {escape(proposal.id)}</summary>{form}</details>"


def _own_html(visit: Visit, snapshot: JobSnapshot, may: Callable[[Action], bool]) -> str:
    """Return the forms for changes that answer no proposal: undo, mode, budget, sizes."""
    forms = ""
    if snapshot.undo is not None and may(Action.UNDO):
        fields = seen_fields(visit, snapshot) | {"decision": snapshot.undo.undoes}
        fields |= {"cancels": "yes"} if snapshot.undo_cancels else {}
        label = f"{'Cancel' if snapshot.undo_cancels else 'Undo'} {snapshot.undo.undoes}"
        row = f'<div class="form-row">{reason_field()}{button("undo", label)}</div>'
        forms += f"<p>{escape(undo_words(snapshot))}</p>" + act_form(label, fields, row, root=visit.root)
    if may(Action.MODE):
        options = "".join(
            f"<option{' selected' if mode is snapshot.mode else ''}>{mode}</option>" for mode in Mode
        )
        row = (
            f'<div class="form-row"><label>Who decides <select name="mode">{options}</select></label>'
            f"{reason_field()}{button('mode', 'Set mode')}</div>"
        )
        forms += act_form("Mode", seen_fields(visit, snapshot), row, root=visit.root)
    if may(Action.BUDGET):
        limit = "" if snapshot.spec.budget_total is None else f"{snapshot.spec.budget_total:g}"
        row = (
            f'<div class="form-row"><label>Total budget in {escape(snapshot.spec.prices.currency)}, empty '
            f'for no limit <input name="budget_total" type="number" min="0" step="any" '
            f'value="{limit}"></label>'
            f"{reason_field()}{button('budget', 'Set budget')}</div>"
        )
        forms += act_form("Budget", seen_fields(visit, snapshot), row, root=visit.root)
    if may(Action.SCALE):
        row = (
            f"{sizes_fields(snapshot.target)}"
            f'<div class="form-row">{reason_field()}{button("scale", "Scale to this plan")}</div>'
        )
        form = act_form("Scale", seen_fields(visit, snapshot), row, root=visit.root)
        forms += f"<details><summary>Set a plan of your own</summary>{form}</details>"
    return forms


def _drift_html(visit: Visit, snapshot: JobSnapshot) -> str:
    name = _note_name(visit, snapshot.spec.name)
    given = visit.team.notes.find(visit.person.name, drift.KIND, name)
    try:
        shown = blocks_html(drift.drift_blocks(snapshot, given[0].text if given else None))
    except DlroverError as error:
        shown = block_html(Paragraph(f"The file cannot be compared: {error}", Tone.WARNING))
    fields = hidden({"cluster": visit.cluster, "job": snapshot.spec.name})
    return (
        f'{shown}<form method="post" action="{escape(visit.root)}/file" enctype="multipart/form-data" '
        f'aria-label="File to compare with">{hidden({"csrf": visit.csrf})}{fields}<div class="form-row">'
        '<label>Exported YAML <input type="file" name="file" accept=".yaml,.yml" required></label>'
        "<button>Compare</button></div></form>"
    )


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
    answers = () if proposal is None else commands(name, proposal)
    if snapshot.open_mitigation is not None:
        answers += mitigations.commands(name, snapshot.open_mitigation)
    return (f"%dlrover connect {cluster}", f"%dlrover attach {name}", f"%dlrover status {name}", *answers)


def _end_html(visit: Visit, snapshot: JobSnapshot, may: Callable[[Action], bool]) -> str:
    return "".join(
        f'<p><a href="confirm?{escape(urlencode(_place(visit, snapshot) | {"action": str(action)}))}">'
        f"{str(action).capitalize()} {escape(snapshot.spec.name)}…</a></p>"
        for action in _STOPS
        if may(action)
    )


def _place(visit: Visit, snapshot: JobSnapshot) -> dict[str, str]:
    return {"cluster": visit.cluster, "name": snapshot.spec.name}


def _live_html(visit: Visit, name: str) -> str:
    address = f"{visit.root}/live?{urlencode({'cluster': visit.cluster, 'job': name})}"
    return (
        f'<h2>Live</h2><iframe id="live" class="job-live" src="{escape(address)}" '
        f'title="Live charts of {escape(name)}"></iframe>'
    )


def confirm_body(visit: Visit) -> str:
    """Return the page that asks once more before a job is ended."""
    snapshot = snapshot_of(visit, visit.query.get("name", ""))
    may, name = _rights(visit, snapshot), snapshot.spec.name
    action = next((each for each in _STOPS if each == visit.query.get("action")), None)
    if action is None or not may(action):
        words = "Nothing here can be confirmed: the job has ended, or it is not yours to end."
        return block_html(Paragraph(words, Tone.WARNING)) + _back_html(visit, name)
    press = button(str(action), f"{str(action).capitalize()} {name}")
    row = f'<div class="form-row">{reason_field()}{press}</div>'
    form = act_form(f"{action} {name}", seen_fields(visit, snapshot), row, root=visit.root)
    share = share_done(snapshot.train)
    trained = "" if share is None else f" It has trained {units.percent(share)}."
    warning = Paragraph(f"{_STOPS[action]}{trained}", Tone.WARNING)
    return head_html(visit) + block_html(warning) + form + _back_html(visit, name)


def _back_html(visit: Visit, name: str) -> str:
    return f'<p><a href="{escape(job_link(visit.cluster, name))}">Back to {escape(name)}</a></p>'


PAGE = Page("job", "Job", body, is_listed=False)
CONFIRM = Page("confirm", "End a job", confirm_body, is_listed=False)
