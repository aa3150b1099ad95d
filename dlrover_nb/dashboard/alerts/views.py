"""What people see of alerts: a strip for the head of other pages, and a page of its own.

A person sees the alerts of namespaces that they may view; jobs that they have muted are left out of the
strip, and are marked on the page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlrover_nb.core.alerts import duration
from dlrover_nb.core.errors import BackendError
from dlrover_nb.core.structs.decisions.commands import Action
from dlrover_nb.core.structs.views.alerts import AlertKind
from dlrover_nb.dashboard.alerts.links import path_of
from dlrover_nb.dashboard.alerts.muted import HOURS, is_muted, muted_by
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.rendering import render
from dlrover_nb.widgets import units

if TYPE_CHECKING:
    from collections.abc import Iterable

    from markupsafe import Markup

    from dlrover_nb.core.structs.views.alerts import Alert
    from dlrover_nb.dashboard.alerts.muted import Muted
    from dlrover_nb.dashboard.page import Visit

N_STRIP = 5  # alerts of the strip; the page has them all
N_RECENT = 50
_HOURS = tuple((hours, f"{hours} h" if hours <= 24 else f"{hours // 24} days") for hours in HOURS)
_DO = {AlertKind.PROPOSAL: "Decide", AlertKind.SECOND_PERSON: "Decide"}


@dataclass(frozen=True, slots=True)
class AlertCard:
    """An open alert in words.

    Parameters
    ----------
    href, word, label
        Where it leads to, in a word, and for those who hear the word alone.
    where, since
        The cluster with the owner of the job; when it began.
    muted_until
        Until when the person has muted the job; empty: they have not.
    """

    cluster: str
    job: str
    title: str
    text: str
    href: str
    word: str
    label: str
    where: str
    since: str
    muted_until: str


@dataclass(frozen=True, slots=True)
class _PastAlert:
    """An alert that is over, in words."""

    job: str
    href: str
    kind: str
    text: str
    begin: str
    lasted: str


def alerts_strip(visit: Visit) -> Markup:
    """Return the open alerts as a part of another page; it is there without any, so that news is read out."""
    now_s = visit.team.now_s()
    muted = muted_by(visit.team.notes, visit.person.name, now_s)
    loud = [alert for alert in visible_alerts(visit, visit.team.alerts.open()) if not is_muted(alert, muted)]
    cards = [_card(visit, alert, now_s, {}) for alert in loud[:N_STRIP]]
    return render("alerts_strip.html", cards=cards, n_all=len(loud), root=visit.root)


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


def body(visit: Visit) -> Markup:
    """Return the page: what is open, then what was; ``job`` of the address takes one job alone."""
    job, now_s = visit.query.get("job", ""), visit.team.now_s()
    muted = muted_by(visit.team.notes, visit.person.name, now_s)
    open_alerts = [a for a in visible_alerts(visit, visit.team.alerts.open()) if job in {"", a.about.job}]
    past = visible_alerts(visit, visit.team.alerts.ended(N_RECENT, job=job or None))
    return render(
        "alerts.html",
        visit=visit,
        only=job,
        cards=[_card(visit, alert, now_s, muted) for alert in reversed(open_alerts)],
        past=[_past(visit, alert) for alert in past],
        hours=_HOURS,
    )


def _card(visit: Visit, alert: Alert, now_s: float, muted: dict[tuple[str, str], Muted]) -> AlertCard:
    about, word = alert.about, _DO.get(alert.kind, "Look")
    mute = muted.get((about.cluster, about.job))
    return AlertCard(
        about.cluster,
        about.job,
        alert.title,
        alert.text,
        visit.root + path_of(alert),
        word,
        f"{word}: {about.job}, {alert.kind}",
        f"{about.cluster}{' of ' + about.owner if about.owner else ''}",
        f"{units.clock(alert.at_s)}, {duration(max(0.0, now_s - alert.at_s))} ago",
        "" if mute is None else units.clock(mute.until_s),
    )


def _past(visit: Visit, alert: Alert) -> _PastAlert:
    lasted = duration((alert.ended_at_s or alert.at_s) - alert.at_s)
    href, begin = visit.root + path_of(alert), units.clock(alert.at_s)
    return _PastAlert(alert.about.job, href, alert.kind, alert.text, begin, lasted)


PAGE = Page("alerts", "Alerts", body)
