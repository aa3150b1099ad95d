"""The page *Proposals*: what waits for a person, of all jobs of all clusters, to be answered together.

First the requests that wait for a second person, as somebody else waits for them; then the open proposals,
and actions against stragglers, as one batch, with the sum of what they cost and bring. Several are answered
by one form, without a script; the script adds the sum of those that are chosen.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.flash import flash_html
from dlrover_nb.dashboard.forms.proposal_batch import open_lines, reason_name, sum_words
from dlrover_nb.dashboard.forms.second import waiting
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.jobs import job_link
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Tone
from dlrover_nb.widgets.jobs.plans import transition_words
from dlrover_nb.widgets.mitigations import gain_words

if TYPE_CHECKING:
    from markupsafe import Markup

    from dlrover_nb.dashboard.forms.proposal_batch import Line
    from dlrover_nb.dashboard.forms.second import Waiting
    from dlrover_nb.dashboard.page import Visit

_HEAD = ("job", "proposal", "plan", "throughput", "cost per hour", "finish in", "change itself", "reason")


def body(visit: Visit) -> Markup:
    """Return the page."""
    if not any(visit.team.may(visit.person, Action.VIEW, key) for key in visit.team.clusters):
        raise NotAllowedError("you have no role here and may see no proposals; ask an administrator for one")
    news, requests = flash_html(visit), waiting(visit.team, visit.person)
    lines = open_lines(visit.team, visit.person)
    can_answer = any(line.may_answer and line.is_known for line in lines)
    return render(
        "proposals.html",
        visit=visit,
        news=news,
        requests=[_card(each) for each in requests],
        no_request=Paragraph("No request waits for a second person."),
        no_proposal=Paragraph("No proposal is open."),
        rows=[_row(line) for line in lines],
        sum=sum_words(lines) if lines else "",
        titles=[title for title in _HEAD if can_answer or title != "reason"],
        can_answer=can_answer,
        key=uuid.uuid4().hex,
        warnings=_silent_clusters(visit),
    )


def _silent_clusters(visit: Visit) -> list[Paragraph]:
    """Return which clusters do not answer: their proposals may be missing, or old."""
    return [
        Paragraph(f"{key} does not answer, and its proposals may be old: {error}", Tone.WARNING)
        for key, cluster in visit.team.clusters.items()
        if (error := cluster.jobs().error)
    ]


# a second person


@dataclass(frozen=True, slots=True)
class _Card:
    """A request in words, with where its job is shown; `refusal` says why this person can do nothing."""

    waiting: Waiting
    words: Paragraph
    jobs: list[tuple[str, str]]
    refusal: Paragraph | None


def _card(each: Waiting) -> _Card:
    request, refusal = each.request, None
    cost = "" if request.cost_per_hour is None else f", {request.cost_per_hour:,.4g} an hour"
    why = f" Reason: {request.command.why}" if request.command.why else ""
    text = (
        f"{request.id}: {request.first} asks to {request.command.words} of job {request.command.job}{cost}, "
        f"since {units.clock(request.at_s)}, until {units.clock(request.expires_at_s)}. {request.rule}.{why}"
    )
    if not each.clusters:
        refusal = Paragraph("Its job is not in the list now, so nothing can be done about it.")
    elif not each.may_approve and not each.is_own:
        refusal = Paragraph("Your role does not include it.")
    jobs = [(key, job_link(key, request.command.job)) for key in each.clusters]
    return _Card(each, Paragraph(text, Tone.NEWS), jobs, refusal)


# the batch


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the table.

    Parameters
    ----------
    pick
        What is sent where it is chosen; empty: this person may not answer it.
    reason
        Name of the field for the reason.
    about
        Which proposal of which job.
    gain, cost, currency
        What the script sums.
    """

    job: str
    cluster: str
    href: str
    about: str
    cells: tuple[str, ...]
    pick: str
    reason: str
    gain: str
    cost: str
    currency: str


def _row(line: Line) -> _Row:
    pick = line.pick if line.may_answer and line.is_known else None
    return _Row(
        job=line.job.name,
        cluster=line.cluster,
        href=job_link(line.cluster, line.job.name),
        about=f"{line.proposal} of {line.job.name}",
        cells=_cells(line),
        pick=pick.text if pick else "",
        reason=reason_name(pick) if pick else "",
        gain=f"{line.gain_samples_per_s:.6g}",
        cost=_number(line.cost_change),
        currency=line.job.outlook.currency,
    )


def _cells(line: Line) -> tuple[str, ...]:
    if not line.is_known:
        return (line.proposal, "its master is older and tells no more here; look at the job", "", "", "", "")
    return _change_cells(line) if line.change is not None else _action_cells(line)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"


def _action_cells(line: Line) -> tuple[str, ...]:
    """Return what an action against a straggler does, as text: no plan and no price change."""
    action = line.action
    assert action is not None
    plan = f"{line.job.plan.short} stays" if line.job.plan else "stays"
    why = f": {action.why}" if action.why else ""
    return (
        f"{line.proposal} {action.words}{why}",
        plan,
        gain_words(action.gain),
        "as now",
        units.MISSING,
        action.cost or units.MISSING,
    )


def _change_cells(line: Line) -> tuple[str, ...]:
    """Return what a proposal would change, as text."""
    change, outlook = line.change, line.job.outlook
    assert change is not None
    money = units.Currency(outlook.currency, outlook.prices_assumed)
    share = change.samples_per_s / change.before_samples_per_s - 1 if change.before_samples_per_s else None
    cost = units.PRICE_UNKNOWN
    if line.cost_change is not None:
        more = units.signed_money(line.cost_change, money, per="h")
        before, after = units.number(change.before_cost_per_hour), units.number(change.cost_per_hour)
        cost = f"{before} to {after} ({more}{money.note})"
    rates = f"{units.number(change.before_samples_per_s)} to {units.rate(change.samples_per_s)}"
    plan = line.job.plan.short if line.job.plan else units.MISSING
    return (
        f"{line.proposal} {change.kind}: {change.why}",
        f"{plan} to {change.plan.short}",
        f"{rates} ({units.signed_percent(share)})",
        cost,
        f"{units.duration(change.before_finish_s)} to {units.duration(change.finish_s)}",
        transition_words(change.transition_s),
    )


PAGE = Page("proposals", "Proposals", body)
