"""What people see of alerts: a strip for the head of other pages, and a page of its own.

A person sees the alerts of namespaces that they may view; jobs that they have muted are left out of the
strip, and are marked on the page.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.alerts import duration
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.views.alerts import AlertKind
from dlrover_nb.dashboard.alerts.links import path_of
from dlrover_nb.dashboard.alerts.muted import HOURS, is_muted, muted_by
from dlrover_nb.dashboard.page import Page
from dlrover_nb.widgets import theme, units
from dlrover_nb.widgets.blocks import escape

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.views.alerts import Alert
    from dlrover_nb.dashboard.alerts.muted import Muted
    from dlrover_nb.dashboard.page import Visit

N_STRIP = 5  # alerts of the strip; the page has them all
N_RECENT = 50
_CARD = (
    f"border:1px solid {theme.EDGE};border-left:4px solid {theme.WARN};border-radius:6px;padding:8px 12px;"
    f"margin:8px 0;background:{theme.BG};color:{theme.INK};overflow-wrap:anywhere"
)
_CONTROL = "min-height:32px;font:inherit;margin-right:6px"
_DO = {AlertKind.PROPOSAL: "Decide", AlertKind.SECOND_PERSON: "Decide"}


def alerts_strip(visit: Visit) -> str:
    """Return the open alerts as a part of another page; it is there without any, so that news is read out."""
    muted = muted_by(visit.team.notes, visit.person.name, visit.team.now_s())
    loud = [alert for alert in visible_alerts(visit, visit.team.alerts.open()) if not is_muted(alert, muted)]
    items = "".join(f"<li>{_line(visit, alert)}</li>" for alert in loud[:N_STRIP])
    more = (
        f'<li><a href="{escape(visit.root)}/alerts">All {len(loud)} alerts</a></li>' if loud[N_STRIP:] else ""
    )
    content = f'<ul style="list-style:none;margin:0;padding:0">{items}{more}</ul>' if loud else ""
    style = f' style="{_CARD}"' if loud else ""
    return (
        f'<div class="dl-alerts" role="status" aria-live="polite" aria-label="Alerts"{style}>{content}</div>'
    )


def visible_alerts(visit: Visit, alerts: Iterable[Alert]) -> list[Alert]:
    """Return the alerts of clusters of this server whose jobs a person may view, in their order."""
    clusters = {key for key in visit.team.clusters if _may_view(visit, key)}
    return [alert for alert in alerts if alert.about.cluster in clusters and _is_in(visit, alert)]


def _may_view(visit: Visit, key: str) -> bool:
    try:
        return visit.team.may(visit.person, Action.VIEW, key)
    except BackendError:
        return False  # a cluster that cannot tell now; the strip must not take its page down


def _is_in(visit: Visit, alert: Alert) -> bool:
    """Whether an alert is still of the namespace that its cluster is watched for."""
    return alert.about.namespace == visit.team.cluster(alert.about.cluster).namespace


def body(visit: Visit) -> str:
    """Return the page: what is open, then what was; ``job`` of the address takes one job alone."""
    job, now_s = visit.query.get("job", ""), visit.team.now_s()
    muted = muted_by(visit.team.notes, visit.person.name, now_s)
    open_alerts = [a for a in visible_alerts(visit, visit.team.alerts.open()) if job in {"", a.about.job}]
    past = visible_alerts(visit, visit.team.alerts.ended(N_RECENT, job=job or None))
    cards = "".join(
        _card(visit, alert, now_s, until_s=_until(alert, muted)) for alert in reversed(open_alerts)
    )
    only = f'<p>Only job {escape(job)}. <a href="{escape(visit.root)}/alerts">All jobs</a></p>' if job else ""
    return (
        f'{only}<section aria-live="polite"><h2>Open</h2>{cards or "<p>No alert is open.</p>"}</section>'
        f"<section><h2>Over</h2>{_past_table(visit, past)}</section>"
    )


def _until(alert: Alert, muted: dict[tuple[str, str], Muted]) -> float | None:
    mute = muted.get((alert.about.cluster, alert.about.job))
    return mute.until_s if mute is not None else None


def _line(visit: Visit, alert: Alert) -> str:
    return f"<strong>{escape(alert.title)}</strong>: {escape(alert.text)} {_link(visit, alert)}"


def _link(visit: Visit, alert: Alert) -> str:
    label = f"{_DO.get(alert.kind, 'Look')}: {alert.about.job}, {alert.kind}"
    word = _DO.get(alert.kind, "Look")
    return f'<a href="{escape(visit.root + path_of(alert))}" aria-label="{escape(label)}">{word}</a>'


def _card(visit: Visit, alert: Alert, now_s: float, *, until_s: float | None) -> str:
    since = f"{units.clock(alert.at_s)}, {duration(max(0.0, now_s - alert.at_s))} ago"
    where = f"{alert.about.cluster}{' of ' + alert.about.owner if alert.about.owner else ''}"
    return (
        f'<article style="{_CARD}">{_line(visit, alert)}'
        f'<p style="margin:4px 0;color:{theme.MUTED}">{escape(where)}, since {escape(since)}</p>'
        f"{_mute_form(visit, alert, until_s)}</article>"
    )


def _mute_form(visit: Visit, alert: Alert, until_s: float | None) -> str:
    about = alert.about
    hidden = "".join(
        f'<input type="hidden" name="{name}" value="{escape(value)}">'
        for name, value in (("csrf", visit.csrf), ("cluster", about.cluster), ("job", about.job))
    )
    if until_s is not None:
        until = f"Muted for you until {escape(units.clock(until_s))}. "
        button = f'<button name="hours" value="0" style="{_CONTROL}">Unmute {escape(about.job)}</button>'
        choice = until + button
    else:
        options = "".join(f'<option value="{hours}">{_hours(hours)}</option>' for hours in HOURS)
        choice = (
            f'<label>Mute {escape(about.job)} for me for <select name="hours" style="{_CONTROL}">{options}'
            f'</select></label><button style="{_CONTROL}">Mute</button>'
        )
    return f'<form method="post" action="{escape(visit.root)}/alerts/mute">{hidden}{choice}</form>'


def _hours(hours: int) -> str:
    return f"{hours} h" if hours <= 24 else f"{hours // 24} days"


def _past_table(visit: Visit, past: list[Alert]) -> str:
    if not past:
        return "<p>No alert has ended yet.</p>"
    cell = f"padding:4px 12px 4px 0;text-align:left;vertical-align:top;border-bottom:1px solid {theme.GRID}"
    head = "".join(
        f'<th scope="col" style="{cell}">{name}</th>' for name in ("job", "alert", "from", "lasted")
    )
    rows = "".join(_past_row(visit, alert, cell) for alert in past)
    return (
        '<div tabindex="0" role="group" aria-label="Alerts that are over" style="overflow-x:auto">'
        f'<table style="border-collapse:collapse;min-width:480px"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _past_row(visit: Visit, alert: Alert, cell: str) -> str:
    lasted = duration((alert.ended_at_s or alert.at_s) - alert.at_s)
    link = f'<a href="{escape(visit.root + path_of(alert))}">{escape(alert.about.job)}</a>'
    what = f"{escape(alert.kind)}: {escape(alert.text)}"
    return (
        f'<tr><td style="{cell}">{link}</td><td style="{cell}">{what}</td>'
        f'<td style="{cell};white-space:nowrap">{escape(units.clock(alert.at_s))}</td>'
        f'<td style="{cell};white-space:nowrap">{escape(lasted)}</td></tr>'
    )


PAGE = Page("alerts", "Alerts", body)
