"""``/approve/ID``: one decision on a plain page, as alerts link to it, on a phone and from a chat.

The page is HTML and nothing else: no script, no websocket, no live value; it shows what is asked, and two
buttons. An id is not a secret, since the page shows nothing before the sign-in: ``CLUSTER~JOB~pN`` is a
proposal, ``CLUSTER~JOB~mN`` an action against stragglers, ``rN`` a command that waits for a second person.

A form holds the version of the plan that was shown, so a decision on an older one is refused, and a key, so
that sending it twice decides once. The answer is the page itself, with the outcome first: a redirect would
lose the words on a server that shares no session with this one.
"""

from __future__ import annotations

import asyncio
import re
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.basics.redaction import shown
from dlrover_nb.core.errors import DlroverError, InvalidValueError, NotFoundError, StaleDecisionError
from dlrover_nb.core.structs.decisions.commands import Action, Asker, Command, Entry
from dlrover_nb.core.structs.decisions.decisions import ProposalStatus
from dlrover_nb.dashboard.alerts.links import SEPARATOR
from dlrover_nb.dashboard.api_v1.problems import status_of
from dlrover_nb.dashboard.common.waiting_requests import cluster_of
from dlrover_nb.dashboard.forms.act import Ended, Fate, act, answered_words, refused
from dlrover_nb.dashboard.frame.base_handler import PageHandler
from dlrover_nb.dashboard.frame.page_frame import plain_html
from dlrover_nb.dashboard.page import MOST_REASON, Page
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Heading, Paragraph, Tone
from dlrover_nb.widgets.jobs.headline import sentence_alone
from dlrover_nb.widgets.jobs.plans import diff_table, plans_table, proposal_facts
from dlrover_nb.widgets.mitigations import facts as mitigation_facts
from dlrover_nb.widgets.mitigations import slow_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from markupsafe import Markup

    from dlrover_nb.core.client.handle import JobHandle
    from dlrover_nb.core.structs.decisions.commands import SecondRequest
    from dlrover_nb.core.structs.decisions.decisions import Mitigation, Proposal
    from dlrover_nb.core.structs.views.snapshot import JobSnapshot
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.dashboard.sign_in import SignIn
    from dlrover_nb.widgets.blocks import Block

PATH = "/approve/([^/]+)"
APPROVE, REFUSE = "approve", "refuse"
_PROPOSAL, _REQUEST = re.compile(r"[mp]\d{1,14}", re.ASCII), re.compile(r"r\d{1,14}", re.ASCII)
_FORM_FIELDS = ("action", "reason", "version", "run", "key")
_ANSWERS = (("accept", "Approve"), ("reject", "Reject"))


@dataclass(frozen=True, slots=True)
class Subject:
    """What a page is about: a proposal or an action of a job, or a request."""

    cluster: str = ""
    job: str = ""
    proposal: str = ""
    request: str = ""


def subject_of(name: str) -> Subject:
    """Return what an id names; `NotFoundError` where it is none."""
    if _REQUEST.fullmatch(name):
        return Subject(request=name)
    cluster, *rest = name.rsplit(SEPARATOR, 2)
    if cluster and len(rest) == 2 and rest[0] and _PROPOSAL.fullmatch(rest[1]):
        return Subject(cluster, *rest)
    raise NotFoundError(
        f"the address must end with CLUSTER~JOB~pN, CLUSTER~JOB~mN or rN, got {shown(name)}; "
        "follow the alert again"
    )


@dataclass(frozen=True, slots=True)
class _Content:
    """What is to be decided.

    Parameters
    ----------
    head
        Above the facts.
    facts
        Names with their values, in as many columns as there is room for.
    answer
        Who may answer, or who did.
    buttons
        The value and the text of each; none: this person cannot decide.
    fields
        What the form holds of what its person saw.
    """

    job: str
    href: str
    head: tuple[Block, ...]
    facts: tuple[tuple[str, str], ...]
    answer: Block
    buttons: tuple[tuple[str, str], ...]
    fields: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Answer:
    """What the page shows: what became of a decision, and what stands now; None: there is none."""

    content: _Content | None = None
    outcome: Paragraph | None = None
    error: Paragraph | None = None

    def html(self, visit: Visit) -> Markup:
        """Return the content of the page."""
        return render(
            "approve.html", visit=visit, content=self.content, outcome=self.outcome, error=self.error
        )


class ApproveHandler(PageHandler):
    """Shows what is to be decided, and takes the decision."""

    async def get(self, name: str) -> None:  # type: ignore[override]  # with the id
        """Write the page."""
        await self._write(lambda visit: _Answer(content_of(visit, subject_of(name))))

    async def post(self, name: str) -> None:
        """Take a decision, and write what became of it."""
        form = {field: self.get_body_argument(field, "") for field in _FORM_FIELDS}
        await self._write(lambda visit: decided(visit, subject_of(name), form))

    async def _write(self, answer: Callable[[Visit], _Answer]) -> None:
        visit = self.visit()
        try:
            shown = await asyncio.get_running_loop().run_in_executor(None, answer, visit)
        except DlroverError as error:
            self.set_status(status_of(error))
            shown = _Answer(error=Paragraph(str(error), Tone.WARNING))
        self.write(plain_html(self.page.title, shown.html(visit), root=visit.root))


def approve_patterns(team: Team, sign_in: SignIn) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handler of the page, as the server takes it."""
    page = Page("approve", "Decide", lambda visit: _Answer().html(visit), is_listed=False)
    return [(PATH, ApproveHandler, {"team": team, "sign_in": sign_in, "page": page})]


# the content


def content_of(visit: Visit, subject: Subject) -> _Content:
    """Return what is to be decided, with the form where this person may."""
    if subject.request:
        return _of_request(visit, visit.team.requests.find(subject.request))
    snapshot = visit.team.job(subject.cluster, subject.job, _asker(visit)).snapshot()
    if subject.proposal.startswith("m"):
        return _of_action(visit, subject, snapshot)
    return _of_proposal(visit, subject, snapshot)


def decided(visit: Visit, subject: Subject, form: dict[str, str]) -> _Answer:
    """Carry a decision out, and return what became of it, then what stands now."""
    if subject.request:
        ended = _decide_request(visit, subject.request, form)
        return _Answer(_after_request(visit, subject), ended.flash.block)
    if form["action"] not in {Action.ACCEPT, Action.REJECT}:
        raise InvalidValueError(
            f"action must be accept or reject, got {shown(form['action'])}; load the page again"
        )
    about = {"cluster": subject.cluster, "job": subject.job, "proposal": subject.proposal}
    ended = act(visit.team, visit.person, form | about, Entry.APPROVE)
    return _Answer(content_of(visit, subject), ended.flash.block)


def _asker(visit: Visit) -> Asker:
    return Asker(visit.person, Entry.APPROVE)


# a proposal


def _of_proposal(visit: Visit, subject: Subject, snapshot: JobSnapshot) -> _Content:
    proposal = next((each for each in snapshot.proposals if each.id == subject.proposal), None)
    if proposal is None:
        raise NotFoundError(
            f"job {subject.job} has no proposal {subject.proposal} any more; look at the job as it is now"
        )
    head: tuple[Block, ...] = (
        Heading(f"{proposal.id} of job {snapshot.title}"),
        sentence_alone(proposal, snapshot),
        Paragraph(proposal.why),
        diff_table(proposal),
    )
    facts = proposal_facts(proposal, snapshot)
    return _of_job(visit, subject, snapshot, proposal, head=head, facts=facts)


def _of_job(
    visit: Visit,
    subject: Subject,
    snapshot: JobSnapshot,
    about: Proposal | Mitigation,
    *,
    head: tuple[Block, ...],
    facts: tuple[tuple[str, str], ...],
) -> _Content:
    answer, is_open = _answer_block(visit, subject, about, snapshot)
    return _Content(
        subject.job,
        _job_address(visit, subject.cluster, subject.job),
        head,
        (("cluster", subject.cluster), *facts),
        answer,
        _ANSWERS if is_open else (),
        _fields(visit, {"version": snapshot.version, "run": snapshot.run}),
    )


def _answer_block(
    visit: Visit, subject: Subject, proposal: Proposal | Mitigation, snapshot: JobSnapshot
) -> tuple[Block, bool]:
    """Return who may answer, or who did, and whether this person can."""
    if proposal.status is not ProposalStatus.PENDING:
        who = answered_words(snapshot.decisions, proposal.id) or proposal.note
        return Paragraph(
            f"There is nothing left to decide: {proposal.id} is {proposal.status}. {who}".strip()
        ), False
    owner = snapshot.spec.owner
    if refusal := visit.team.refusal(visit.person, Action.ACCEPT, subject.cluster, owner=owner):
        return Paragraph(f"You can look at it, but not decide: {refusal}.", Tone.HINT), False
    return Paragraph(f"Made at {units.clock(proposal.created_at_s)}; it waits for an answer."), True


def _of_action(visit: Visit, subject: Subject, snapshot: JobSnapshot) -> _Content:
    action = next((each for each in snapshot.mitigations if each.id == subject.proposal), None)
    if action is None:
        raise NotFoundError(
            f"job {subject.job} has no action {subject.proposal} any more; look at the job as it is now"
        )
    title = Heading(f"{action.id} of job {snapshot.title}: {action.words}")
    head = (title, *slow_blocks(snapshot))
    return _of_job(visit, subject, snapshot, action, head=head, facts=mitigation_facts(action))


# a request


def _of_request(visit: Visit, request: SecondRequest) -> _Content:
    key, command = cluster_of(visit.team, request), request.command
    snapshot = _snapshot_if_any(visit.team.job(key, command.job, _asker(visit)))
    title = Heading(f"{request.id}: {command.words} of job {command.job}")
    action = _answered_action(request, snapshot)
    rows = mitigation_facts(action) if action is not None else ()
    owner = snapshot.spec.owner if snapshot is not None else ""
    answer, buttons = _second_person(visit, request, key, owner)
    return _Content(
        command.job,
        _job_address(visit, key, command.job),
        (title, *_request_plan(request, snapshot)),
        (*_request_facts(key, request), *rows),
        answer,
        buttons,
        _fields(visit, {}),
    )


def _snapshot_if_any(handle: JobHandle) -> JobSnapshot | None:
    """Return the job's state; None: its master does not answer, and the job may be stopped all the same."""
    try:
        return handle.with_short_timeout.snapshot()
    except DlroverError:
        return None


def _request_facts(key: str, request: SecondRequest) -> tuple[tuple[str, str], ...]:
    cost = request.cost_per_hour
    return (
        ("cluster", key),
        ("asked by", f"{request.first}, through the {request.entry}, at {units.clock(request.at_s)}"),
        ("reason", request.command.why or "none was given"),
        ("needs you because", request.rule),
        *((("cost", f"{cost:,.2f} an hour"),) if cost is not None else ()),
        ("waits until", units.clock(request.expires_at_s)),
    )


def _request_plan(request: SecondRequest, snapshot: JobSnapshot | None) -> tuple[Block, ...]:
    """Return the plan now and the one asked for, where the command has one."""
    decision = request.command.decision
    if decision is None or snapshot is None:
        return ()
    proposal = next((each for each in snapshot.proposals if each.id == decision.proposal), None)
    plan = decision.plan or (proposal.candidate.plan if proposal is not None else None)
    return () if plan is None else (plans_table(snapshot.target, plan, "asked for"),)


def _answered_action(request: SecondRequest, snapshot: JobSnapshot | None) -> Mitigation | None:
    """Return the action against stragglers that a request answers by its id, if it answers one."""
    decision = request.command.decision
    if decision is None or snapshot is None:
        return None
    return next((each for each in snapshot.mitigations if each.id == decision.proposal), None)


def _second_person(
    visit: Visit, request: SecondRequest, key: str, owner: str
) -> tuple[Block, tuple[tuple[str, str], ...]]:
    """Return what this person can do about a request, and the buttons for it."""
    is_first = visit.person.name == request.first
    if is_first and visit.team.commands.why_not_approve(request, visit.person.name):
        text = "You asked for this, so another person must approve it. You can withdraw it."
        return Paragraph(text, Tone.HINT), ((REFUSE, "Take back"),)
    if refusal := visit.team.refusal(visit.person, request.command.action, key, owner=owner):
        return Paragraph(f"You can look at it, but not decide: {refusal}.", Tone.HINT), ()
    waits = "An agent proposed it in your name." if is_first else "It waits for you as the second person."
    return Paragraph(waits), ((APPROVE, "Approve"), (REFUSE, "Refuse"))


def _decide_request(visit: Visit, name: str, form: dict[str, str]) -> Ended:
    """Approve or refuse a request; every refusal is told in words."""
    command, handle = Command(Action.VIEW, ""), None
    try:
        if form["action"] not in {APPROVE, REFUSE}:
            raise InvalidValueError(
                f"action must be approve or refuse, got {shown(form['action'])}; load the page again"
            )
        request = visit.team.requests.find(name)
        command = request.command
        handle = visit.team.job(cluster_of(visit.team, request), command.job, _asker(visit))
        if form["action"] == REFUSE:
            why = form["reason"].strip()[:MOST_REASON]
            visit.team.commands.withdraw(name, _asker(visit), handle.facts(command), why)
            what = f"{command.words} of job {command.job}"
            return Ended(Fate.DONE, f"{name} was refused: {what} will not be carried out.")
        made = handle.approve(request)
    except DlroverError as error:
        return refused(error, command.words if command.job else name, {"job": command.job}, handle)
    as_id = f" as {made.id}" if made is not None else ""
    return Ended(Fate.DONE, f"{name} was approved, and {command.words} of job {command.job} is done{as_id}.")


def _after_request(visit: Visit, subject: Subject) -> _Content | None:
    """Return the request as it stands after an answer: nothing where it is closed."""
    try:
        return content_of(visit, subject)
    except (StaleDecisionError, NotFoundError):
        return None


# parts


def _fields(visit: Visit, decision_fields: Mapping[str, str]) -> dict[str, str]:
    return {"csrf": visit.csrf, **decision_fields, "key": secrets.token_hex(16)}


def _job_address(visit: Visit, cluster: str, job: str) -> str:
    return f"{visit.root}/job?{urlencode({'cluster': cluster, 'name': job})}"
