"""What the review card of a live view says and offers: a pure function of what is known.

Buttons tell the truth. They can be pressed only while a proposal waits and its master answers; after a press
the card says what was asked, then what the master made of it, taken from the next snapshots: accepted,
applying, applied after a measured pause, or refused and why. Nothing here ever says "done" by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.decisions import Verdict
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Facts, Paragraph, Tone, block_html, escape, table_html
from dlrover_nb.widgets.plans import change_facts, currency, diff_table, status_words
from dlrover_nb.widgets.status import kind_words

if TYPE_CHECKING:
    from dlrover_nb.core.structs.decisions import Decision, Proposal
    from dlrover_nb.core.structs.snapshot import JobSnapshot

STALE_S = 5.0  # a picture older than this is marked; the master is asked every second


class Answer(StrEnum):
    """How far a press of a button has got."""

    ASKED = "asked"
    TAKEN = "taken"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Asked:
    """The last press of a button in this view, about the proposal that the user saw."""

    verdict: Verdict
    proposal: str
    answer: Answer = Answer.ASKED
    decision: Decision | None = None
    why: str = ""  # of a refusal


@dataclass(frozen=True, slots=True)
class Link:
    """How good the way to the master is: age of the picture, and the error of the last attempt."""

    age_s: float
    error: str = ""

    @property
    def badge(self) -> str:
        """Say that the picture is old, or nothing."""
        if self.age_s < STALE_S and not self.error:
            return ""
        lost = f": {self.error}" if self.error else ""
        return f"stale {units.duration(self.age_s)}{lost}"


@dataclass(frozen=True, slots=True)
class Review:
    """The card: which proposal, which buttons may be pressed, and the line that is read out."""

    proposal: Proposal | None
    can_decide: bool
    message: str


def review(snapshot: JobSnapshot, asked: Asked | None, link: Link) -> Review:
    """Return the card for a snapshot, the last press, and the state of the link."""
    opened = snapshot.open_proposal
    in_flight = asked is not None and asked.answer is Answer.ASKED
    shown = opened or _last_shown(snapshot, asked)
    can_decide = opened is not None and not in_flight and not link.badge and not snapshot.phase.is_final
    return Review(shown, can_decide, _message(snapshot, asked, link))


def _last_shown(snapshot: JobSnapshot, asked: Asked | None) -> Proposal | None:
    by_id = {p.id: p for p in snapshot.proposals}
    if asked is not None and asked.proposal in by_id:
        return by_id[asked.proposal]
    return snapshot.proposals[-1] if snapshot.proposals else None


def _message(snapshot: JobSnapshot, asked: Asked | None, link: Link) -> str:
    opened = snapshot.open_proposal
    news = [_asked_words(snapshot, asked)] if asked else []
    if opened is not None and (asked is None or asked.proposal != opened.id):
        news.append(f"Proposal {opened.id} ({str(opened.kind).upper()}) waits for your decision.")
    if opened is None and asked is None:
        news.append(_idle_words(snapshot))
    if link.badge and not snapshot.phase.is_final:
        news.append("The picture is stale, so nothing can be decided from here.")
    return " ".join(news)


def _idle_words(snapshot: JobSnapshot) -> str:
    if snapshot.phase.is_final:
        return f"The job has {snapshot.phase}."
    if snapshot.proposals:
        last = snapshot.proposals[-1]
        return f"No proposal is open; {last.id} is {status_words(last, snapshot)}."
    return "No proposal yet."


def _asked_words(snapshot: JobSnapshot, asked: Asked) -> str:
    if asked.answer is Answer.ASKED:
        return f"Asked to {asked.verdict} {asked.proposal}..."
    if asked.answer is Answer.REFUSED:
        return f"Refused to {asked.verdict} {asked.proposal}: {asked.why}"
    proposal = next((p for p in snapshot.proposals if p.id == asked.proposal), None)
    number = f" as {asked.decision.id}" if asked.decision and asked.decision.id else ""
    if proposal is None or proposal.status == "pending":
        return f"The master took the {asked.verdict} of {asked.proposal}{number}."
    what = "Your plan instead of" if asked.verdict is Verdict.OVERRIDE else "Proposal"
    return f"{what} {asked.proposal}{number}: {status_words(proposal, snapshot)}."


def card_html(card: Review, snapshot: JobSnapshot) -> str:
    """Return the card's content: what is proposed, why, and what it would change."""
    proposal = card.proposal
    if proposal is None:
        return '<p style="color:#1a1a1a;margin:6px 0">No proposal yet: the fit waits for steady samples.</p>'
    badge = Paragraph(f"{kind_words(proposal)} {proposal.why}", _tone(proposal))
    state = "" if proposal.status == "pending" else f" ({proposal.status})"
    head = f"Proposal {escape(proposal.id)}: {escape(str(proposal.kind).upper())}{escape(state)}"
    facts = Facts(change_facts(proposal, currency(snapshot)))
    parts = (block_html(badge), block_html(facts), table_html(diff_table(proposal)))
    return f'<h3 style="margin:0 0 4px;font-size:15px;color:#1a1a1a">{head}</h3>{"".join(parts)}'


def _tone(proposal: Proposal) -> Tone:
    return Tone.EXPLORE if proposal.kind == "explore" else Tone.PLAIN


def header_html(snapshot: JobSnapshot, link: Link) -> str:
    """Return the head line: which job, how it is, how fast, how far, and how old this picture is."""
    counts = snapshot.train
    share = counts.n_sample_done / counts.n_sample_total if counts.n_sample_total else None
    plan = snapshot.running.short if snapshot.running else f"changing to {snapshot.target.short}"
    items = (
        f"{snapshot.phase}{': ' + snapshot.message if snapshot.message else ''}",
        units.rate(snapshot.samples_per_s),
        f"{units.percent(share, 1)} trained",
        f"plan {plan}",
        f"{snapshot.mode} mode",
        f"as of {units.clock(snapshot.at_s)}",
    )
    text = " &middot; ".join(map(escape, items))
    badge = link.badge if not snapshot.phase.is_final else ""
    stale = (
        f' <strong style="background:#D55E00;color:#fff;padding:1px 6px;border-radius:3px">'
        f"{escape(badge)}</strong>"
        if badge
        else ""
    )
    name = escape(snapshot.title)
    return f'<div style="color:#1a1a1a"><strong style="font-size:16px">{name}</strong> {text}{stale}</div>'
