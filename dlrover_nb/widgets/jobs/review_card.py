"""Content and buttons of the review card of a live view: a pure function of the known state.

Buttons reflect the real state. They are enabled only while a proposal is open and its master answers. After a
press the card shows the request, then its result from the next snapshots: accepted, applying, applied after a
measured pause, or refused and why. Success is never assumed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from operator import attrgetter
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions.decisions import ProposalStatus, Verdict
from dlrover_nb.core.structs.job.job import JobPhase
from dlrover_nb.core.structs.plan.resources import Role
from dlrover_nb.core.structs.views.snapshot import waits_told
from dlrover_nb.core.structs.views.summary import is_at_risk, left_of, share_done
from dlrover_nb.widgets import mitigations, units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Tone, block_html, escape, table_html
from dlrover_nb.widgets.jobs.plans import diff_table, none_open, proposal_facts, state_words, status_words
from dlrover_nb.widgets.jobs.status import (
    budget_words,
    change_words,
    host_words,
    quality_words,
    rate_words,
)

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions.decisions import Decision, Proposal
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot

STALE_S = 5.0  # an older snapshot is marked; the master is polled every second
LOCK_S = 0.8  # after a button has changed to another proposal: longer than a person takes to stop a click


class Answer(StrEnum):
    """Progress of a button press."""

    ASKED = "asked"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class PendingAction:
    """The last request from this view: about the proposal or mitigation that the user saw, or the job.

    `verdict` is the pressed one; of an undo it is unknown until the master has answered.
    """

    verdict: Verdict | None
    proposal: str = ""  # or a mitigation; empty: it is about the job
    answer: Answer = Answer.ASKED
    decision: Decision | None = None
    why: str = ""  # of a refusal
    aim: str = ""  # of a request about the job, as text: "scale to ..."

    @property
    def words(self) -> str:
        """Describe the request."""
        return self.aim or f"{self.verdict} {self.proposal}"


@dataclass(frozen=True, slots=True)
class Press:
    """Parsed label of a pressed button: its action; its proposal, mitigation or decision; its plan."""

    verb: str
    subject: str
    plan: str


_VERBS = {
    "do it": "accept", "try it": "accept", "not now": "reject", "try again": "retry", "skip it": "skip",
}  # fmt: skip
_LABEL = re.compile(
    r"(?P<verb>Do it|Try it|Not now|Try again|Skip it|\w+)"
    r"(?: \(?(?P<subject>[dmp]\d+|shard \d+)\)?)?(?: (?:with|to) (?P<plan>.+))?"
)
_DONE = {
    Verdict.ACCEPT: "accepted",
    Verdict.OVERRIDE: "chose another plan instead of",
    Verdict.REJECT: "rejected",
}


def read_press(label: str) -> Press:
    """Read the label of a pressed button: ``Do it (p2)``, ``Override p2 with 3w x 0.5 + 1p x 0.25``."""
    match = _LABEL.fullmatch(label)
    if match is None:
        return Press("", "", "")
    verb = match["verb"].lower()
    return Press(_VERBS.get(verb, verb), match["subject"] or "", match["plan"] or "")


def meaning(label: str) -> str:
    """Return the part of a label that a press must not confuse: ``Override p2``, with whatever plan."""
    press = read_press(label)
    return f"{press.verb} {press.subject}".strip() or label


def too_early(label: str, shown_s: float) -> str:
    """Return why a press is not sent: the button had meant something else just before; empty: it is sent."""
    if shown_s >= LOCK_S:
        return ""
    return (
        f"the button changed to {label!r} just before you pressed it, so nothing was sent; press it again "
        "if you mean it"
    )


def nameless(press: Press, version: str) -> str:
    """Return why a press is not sent that names neither what it answers nor a version; empty: it is sent.

    Such a button is off. Without a name the master would take the press for whatever is open by now.
    """
    if version if press.verb in {Verdict.SCALE, Verdict.MODE} else press.subject:
        return ""
    return "that button's proposal is no longer open; look at the job as it is now"


@dataclass(frozen=True, slots=True)
class Link:
    """State of the link to the master: age of the snapshot, and the error of the last attempt."""

    age_s: float
    error: str = ""

    @property
    def badge(self) -> str:
        """Report that the snapshot is old, or nothing."""
        if self.age_s < STALE_S and not self.error:
            return ""
        lost = f": {self.error}" if self.error else ""
        return f"stale {units.duration(self.age_s)}{lost}"


@dataclass(frozen=True, slots=True)
class Review:
    """The card: its proposal, its enabled buttons, and the line for screen readers.

    `can_act`: the master accepts requests now; `can_decide`: a proposal is open as well;
    `can_answer_action`: an action against stragglers is.
    """

    proposal: Proposal | None
    can_decide: bool
    message: str
    can_act: bool
    can_answer_action: bool = False


def review(snapshot: JobSnapshot, pending: PendingAction | None, link: Link) -> Review:
    """Return the card for a snapshot, the last press, and the state of the link."""
    opened = snapshot.open_proposal
    in_flight = pending is not None and pending.answer is Answer.ASKED
    shown = opened or _last_shown(snapshot, pending)
    can_act = not in_flight and not link.badge and not snapshot.phase.is_final
    acts = can_act and snapshot.open_mitigation is not None
    return Review(shown, can_act and opened is not None, _message(snapshot, pending, link), can_act, acts)


def _last_shown(snapshot: JobSnapshot, pending: PendingAction | None) -> Proposal | None:
    by_id = {p.id: p for p in snapshot.proposals}
    if pending is not None and pending.proposal in by_id:
        return by_id[pending.proposal]
    return snapshot.proposals[-1] if snapshot.proposals else None


def _message(snapshot: JobSnapshot, pending: PendingAction | None, link: Link) -> str:
    opened = snapshot.open_proposal
    news = [_pending_words(snapshot, pending)] if pending else []
    if opened is not None and (pending is None or pending.proposal != opened.id):
        news.append(f"Proposal {opened.id} ({opened.kind.words}) waits for your decision.")
    acts = None if snapshot.phase.is_final else snapshot.open_mitigation
    if acts is not None and (pending is None or pending.proposal != acts.id):
        news.append(f"Action {acts.id} ({acts.words}) waits for your decision.")
    if opened is None and acts is None and pending is None:
        news.append(_idle_words(snapshot))
    if link.badge and not snapshot.phase.is_final:
        news.append("This view is out of date; wait until it reconnects, then decide.")
    return " ".join(news)


def _idle_words(snapshot: JobSnapshot) -> str:
    if snapshot.phase.is_final:
        return f"The job has {snapshot.phase}."
    if snapshot.proposals:
        last = snapshot.proposals[-1]
        return f"No proposal is open; {last.id} is {status_words(last, snapshot)}."
    return "No proposal yet."


def _pending_words(snapshot: JobSnapshot, pending: PendingAction) -> str:
    if pending.answer is Answer.ASKED:
        return f"Sending: {pending.words}..."
    if pending.answer is Answer.REFUSED:
        why = "; ".join(line.strip() for line in pending.why.splitlines())  # a story has lines of its own
        return f"Could not {pending.words}: {why.rstrip('.')}."
    if not pending.proposal:
        return _own_words(snapshot, pending)
    proposal = next((p for p in snapshot.proposals if p.id == pending.proposal), None)
    acted = next((each for each in snapshot.mitigations if each.id == pending.proposal), None)
    number = f" as {pending.decision.id}" if pending.decision and pending.decision.id else ""
    if acted is not None and not acted.is_open:
        return f"Action {acted.id}{number}: {mitigations.status_words(acted)}."
    if proposal is None or proposal.status == "pending":
        return f"Received: {pending.verdict} {pending.proposal}{number}."
    by = pending.decision.by if pending.decision else "you"
    did = "decided on" if pending.verdict is None else _DONE.get(pending.verdict, "decided on")
    return f"{by} {did} {pending.proposal}{_progress(proposal, snapshot)}."


def _own_words(snapshot: JobSnapshot, pending: PendingAction) -> str:
    """Return what became of a request that answers no proposal; one about rows is no decision."""
    if pending.decision is None:
        return f"Received: {pending.words}."
    state = state_words(pending.decision, None, snapshot)
    return f"{pending.words[0].upper()}{pending.words[1:]} (decision {pending.decision.id}): {state}."


def _progress(proposal: Proposal, snapshot: JobSnapshot) -> str:
    """Return what becomes of a decided proposal, after what its user did."""
    match proposal.status:
        case ProposalStatus.ACCEPTED | ProposalStatus.OVERRIDDEN:
            return "; not applied yet"
        case ProposalStatus.APPLYING:
            return "; applying it now"
        case ProposalStatus.REJECTED:
            return ""
        case _:
            return f"; it is {status_words(proposal, snapshot)}"


def undo_label(snapshot: JobSnapshot) -> str:
    """Return the label of the button that takes back the latest change: one under way is cancelled."""
    if snapshot.undo is None:
        return "Undo"
    return f"{'Cancel' if snapshot.undo_cancels else 'Undo'} {snapshot.undo.undoes}"


def undo_words(snapshot: JobSnapshot) -> str:
    """Describe what undo would restore, and from which decision; nothing without one to undo."""
    back = snapshot.undo
    if back is None:
        return ""
    done = next((d for d in snapshot.decisions if d.id == back.undoes), None)
    label = f"{undo_label(snapshot)} ({done.words if done else 'made earlier'})"
    if back.action is not None:
        return f"{label} would {back.action.words}."
    if back.verdict is Verdict.BUDGET:
        limit = (
            "no total budget" if back.budget_total is None else f"a total budget of {back.budget_total:,.6g}"
        )
        return f"{label} goes back to {limit}."
    to = back.plan.short if back.plan else f"{back.mode} mode" if back.mode else f"pinned: {back.pins}"
    return f"{label} goes back to {to}."


def card_html(card: Review, snapshot: JobSnapshot) -> str:
    """Return the card's content: the proposal, its reason, and its changes."""
    proposal = card.proposal
    if proposal is None:
        return block_html(Paragraph(none_open(snapshot)))
    state = "" if proposal.status == "pending" else f" ({proposal.status})"
    head = f"Proposal {escape(proposal.id)}: {proposal.kind.words}{escape(state)}"
    facts = Facts(proposal_facts(proposal, snapshot))
    parts = (block_html(Paragraph(proposal.why)), block_html(facts), table_html(diff_table(proposal)))
    return f'<h3 style="margin:0 0 4px;font-size:15px">{head}</h3>{"".join(parts)}'


def header_html(snapshot: JobSnapshot, link: Link) -> str:
    """Return the head line: job, phase, throughput, progress, and age of the snapshot."""
    short = attrgetter("short")
    plan = short(snapshot.target) if snapshot.phase.is_final else change_words(snapshot, short)
    phase = f"{snapshot.phase}{': ' + snapshot.message if snapshot.message else ''}"
    has_failed = snapshot.phase is JobPhase.FAILED
    items = (
        *(() if has_failed else (phase,)),
        f"{units.percent(share_done(snapshot.train), 1)} trained",
        f"plan {plan}",
        f"{snapshot.mode} mode",
        *_deadline_words(snapshot),
        *_budget_words(snapshot),
        *_end_words(snapshot),
        f"as of {units.clock(snapshot.at_s)}",
    )
    text = " &middot; ".join(map(escape, items))
    badges = "".join(map(_badge_html, (*memory_clock(snapshot, link), link.badge)))
    name = escape(snapshot.title)
    warned = "" if snapshot.phase.is_final else badges
    name += _badge_html(phase) if has_failed else ""
    how = " &middot; ".join(map(escape, filter(None, (rate_words(snapshot), quality_words(snapshot)))))
    head = (
        '<div style="display:flex;flex-wrap:wrap;justify-content:space-between;gap:2px 20px">'
        f'<div style="flex:1 1 340px"><strong style="font-size:16px">{name}</strong> {text}{warned}</div>'
        f'<div style="font-size:15px;font-weight:600">{how}</div></div>'
    )
    if snapshot.phase.is_final:
        return head
    return head + _budget_html(snapshot) + _host_html(snapshot) + _waits_html(snapshot) + _slow_html(snapshot)


def _end_words(snapshot: JobSnapshot) -> tuple[str, ...]:
    """Return when a job that trains will have trained all of its rows."""
    left_s = left_of(snapshot)
    if left_s is None or left_s <= 0:
        return ()
    return (f"ends in about {units.duration(float(f'{left_s:.2g}'))}",)


def _deadline_words(snapshot: JobSnapshot) -> tuple[str, ...]:
    """Return the deadline of a job that runs, and how probable it is to be met."""
    outlook = snapshot.deadline
    if outlook is None or snapshot.phase.is_final:
        return ()
    return (f"deadline {outlook.words}",)


def _budget_words(snapshot: JobSnapshot) -> tuple[str, ...]:
    """Return what is spent of the total budget, in few words."""
    budget = snapshot.budget
    return () if budget is None else (f"budget {budget.spent_words}",)


def _budget_html(snapshot: JobSnapshot) -> str:
    """Say what the rest of the budget buys, once most of it is spent or it will not be enough."""
    budget = snapshot.budget
    if budget is None or budget.is_enough or not (budget.is_near or budget.now is not None):
        return ""
    return block_html(Paragraph(f"Budget: {budget_words(snapshot)}", Tone.WARNING))


def _host_html(snapshot: JobSnapshot) -> str:
    words = host_words(snapshot)
    return block_html(Paragraph(words, Tone.WARNING)) if words else ""


def _waits_html(snapshot: JobSnapshot) -> str:
    """Describe what nodes wait for, where the head line does not."""
    lines = (line for line in waits_told(snapshot.nodes) if line not in snapshot.message)
    return "".join(block_html(Paragraph(f"{line[0].upper()}{line[1:]}", Tone.WARNING)) for line in lines)


def _slow_html(snapshot: JobSnapshot) -> str:
    """Say who is slow, each with its numbers."""
    return "".join(map(block_html, mitigations.slow_blocks(snapshot)))


def _badge_html(words: str) -> str:
    style = "background:#B34700;color:#fff;padding:1px 6px;border-radius:3px;"
    style += "box-decoration-break:clone;-webkit-box-decoration-break:clone"
    return f' <strong style="{style}">{escape(words)}</strong>' if words else ""


def memory_clock(snapshot: JobSnapshot, link: Link) -> tuple[str, ...]:
    """Return how soon nodes are expected to fill their memory, counted down from the time of the snapshot."""
    return tuple(
        f"{'PS' if line.role is Role.PS else 'worker'} memory full in "
        f"{_countdown(line.full_in_s - link.age_s)}"
        for line in snapshot.memory
        if line.full_in_s is not None and is_at_risk(line)
    )


def _countdown(left_s: float) -> str:
    """Return a time left in whole seconds, or minutes: finer ones would only flicker."""
    step_s = 1 if left_s < 90 else 60
    return units.duration(step_s * round(left_s / step_s)) if left_s >= 1 else "moments"
