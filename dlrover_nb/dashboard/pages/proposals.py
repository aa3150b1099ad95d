"""The page *Proposals*: what waits for a person, of all jobs of all clusters, to be answered together.

First the requests that wait for a second person, as somebody else waits for them; then the open proposals,
and actions against stragglers, as one batch, with the sum of what they cost and bring. Several are answered
by one form, without a script; the script adds the sum of those that are chosen.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import NotAllowedError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.dashboard.forms.act import MOST_REASON
from dlrover_nb.dashboard.forms.flash import flash_html
from dlrover_nb.dashboard.forms.markup import hidden, reason_field
from dlrover_nb.dashboard.forms.proposal_batch import open_lines, reason_name, sum_words
from dlrover_nb.dashboard.forms.second import waiting
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.pages.jobs import head_html, job_link
from dlrover_nb.widgets import units
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape
from dlrover_nb.widgets.jobs.plans import transition_words
from dlrover_nb.widgets.mitigations import gain_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dlrover_nb.dashboard.forms.proposal_batch import Line
    from dlrover_nb.dashboard.forms.second import Waiting
    from dlrover_nb.dashboard.page import Visit

_HEAD = ("job", "proposal", "plan", "throughput", "cost per hour", "finish in", "change itself", "reason")


def body(visit: Visit) -> str:
    """Return the page."""
    if not any(visit.team.may(visit.person, Action.VIEW, key) for key in visit.team.clusters):
        raise NotAllowedError("you have no role here and may see no proposals; ask an administrator for one")
    return (
        head_html(visit, ("proposals.js",))
        + flash_html(visit)
        + _second_html(visit, waiting(visit.team, visit.person))
        + _batch_html(visit, open_lines(visit.team, visit.person))
        + _away_html(visit)
    )


def _away_html(visit: Visit) -> str:
    """Return which clusters do not answer: their proposals may be missing, or old."""
    warnings = [
        f"{key} does not answer, and its proposals may be old: {error}"
        for key, cluster in visit.team.clusters.items()
        if (error := cluster.jobs().error)
    ]
    return "".join(block_html(Paragraph(words, Tone.WARNING)) for words in warnings)


# a second person


def _second_html(visit: Visit, requests: Sequence[Waiting]) -> str:
    name = "Waiting for a second person"
    title = f'<section class="job-part" aria-label="{name}"><h2>{name}</h2>'
    if not requests:
        return f"{title}{block_html(Paragraph('No request waits for a second person.'))}</section>"
    parts = "".join(_waiting_html(visit, each) for each in requests)
    return f"{title}{parts}</section>"


def _waiting_html(visit: Visit, each: Waiting) -> str:
    request = each.request
    cost = "" if request.cost_per_hour is None else f", {request.cost_per_hour:,.4g} an hour"
    why = f" Reason: {request.command.why}" if request.command.why else ""
    text = (
        f"{request.id}: {request.first} asks to {request.command.words} of job {request.command.job}{cost}, "
        f"since {units.clock(request.at_s)}, until {units.clock(request.expires_at_s)}. {request.rule}.{why}"
    )
    return f"<div>{block_html(Paragraph(text, Tone.NEWS))}{_second_form(visit, each)}</div>"


def _second_form(visit: Visit, each: Waiting) -> str:
    name = each.request.id
    if not each.clusters:
        return block_html(Paragraph("Its job is not in the list now, so nothing can be done about it."))
    if not each.may_approve and not each.is_own:
        return block_html(Paragraph("Your role does not include it."))
    links = "".join(
        f'<a href="{escape(job_link(key, each.request.command.job))}">{escape(each.request.command.job)} '
        f"on {escape(key)}</a> "
        for key in each.clusters
    )
    approve = (
        f'<button name="action" value="approve">Approve {escape(name)}</button>' if each.may_approve else ""
    )
    verb = "Take back" if each.is_own else "Refuse"
    buttons = f'{approve}<button name="action" value="refuse">{verb} {escape(name)}</button>'
    own = "<p>You asked for this: somebody else must approve it.</p>" if each.is_own else ""
    return (
        f'{own}<p>{links}</p><form method="post" action="{escape(visit.root)}/second" '
        f'aria-label="Request {escape(name)}">{hidden({"csrf": visit.csrf, "request": name})}'
        f'<div class="form-row">{_cluster_field(each.clusters)}{reason_field()}{buttons}</div></form>'
    )


def _cluster_field(clusters: Sequence[str]) -> str:
    if len(clusters) == 1:
        return hidden({"cluster": clusters[0]})
    options = "".join(f"<option>{escape(key)}</option>" for key in clusters)
    return f'<label>Which job <select name="cluster">{options}</select></label>'


# the batch


def _batch_html(visit: Visit, lines: Sequence[Line]) -> str:
    if not lines:
        return block_html(Paragraph("No proposal is open."))
    can_answer = any(line.may_answer and line.is_known for line in lines)
    head = "".join(f'<th scope="col">{title}</th>' for title in _HEAD if can_answer or title != "reason")
    box = '<th scope="col"><span id="all-place">choose</span></th>' if can_answer else ""
    rows = "".join(_line_html(line, can_answer=can_answer) for line in lines)
    table = (
        f'<p id="sum">All together: {escape(sum_words(lines))}.</p>'
        '<p id="chosen" role="status" aria-live="polite"></p>'
        '<div class="jobs-scroll" tabindex="0" role="region" aria-label="Table of proposals">'
        '<table id="batch" class="batch"><caption>Open proposals</caption>'
        f"<thead><tr>{box}{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )
    if not can_answer:
        return table
    fields = hidden({"csrf": visit.csrf, "cluster": visit.cluster, "key": uuid.uuid4().hex})
    return (
        f'<form method="post" action="{escape(visit.root)}/batch" aria-label="Answer proposals">'
        f"{fields}{table}"
        f'<div class="form-row">{reason_field()}'
        '<button name="action" value="accept">Accept the chosen</button>'
        '<button name="action" value="reject">Reject the chosen</button></div></form>'
    )


def _line_html(line: Line, *, can_answer: bool) -> str:
    name = escape(line.job.name)
    job = f'<a href="{escape(job_link(line.cluster, line.job.name))}">{name}</a> on {escape(line.cluster)}'
    about = f"{escape(line.proposal)} of {name}"
    cells: tuple[str, ...]
    if not line.is_known:
        words = "its master is older and tells no more here; look at the job"
        cells = (job, escape(line.proposal), words, "", "", "", "")
    else:
        texts = _change_cells(line) if line.change is not None else _action_cells(line)
        cells = (job, *map(escape, texts))
    is_open = line.may_answer and line.is_known
    box = (
        f'<input type="checkbox" name="pick" value="{escape(line.pick.text)}" aria-label="Choose {about}" '
        f'data-gain="{line.gain_samples_per_s:.6g}" data-cost="{_number(line.cost_change)}" '
        f'data-currency="{escape(line.job.outlook.currency)}">'
        if is_open
        else '<span title="your role does not include it">-</span>'
    )
    reason = (
        f'<input name="{escape(reason_name(line.pick))}" maxlength="{MOST_REASON}" '
        f'aria-label="Reason for {about}" autocomplete="off">'
        if is_open
        else ""
    )
    chosen = (f"<td>{box}</td>", f"<td>{reason}</td>") if can_answer else ("", "")
    first, *rest = cells
    return (
        f'<tr>{chosen[0]}<th scope="row">{first}</th>'
        + "".join(f"<td>{cell}</td>" for cell in rest)
        + f"{chosen[1]}</tr>"
    )


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
