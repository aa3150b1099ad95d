"""The frame of every page: head, navigation, who is signed in, heading."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from dlrover_nb.core.errors import BackendError
from dlrover_nb.widgets.blocks import Paragraph, Tone, block_html, escape

if TYPE_CHECKING:
    from dlrover_nb.core.errors import DlroverError
    from dlrover_nb.dashboard.page import Page, Visit

# What each status means to a person; another one is told in the words of the standard.
_MEANING = {
    400: "The server does not understand this request.",
    401: "You are not signed in.",
    403: "You may not do this.",
    404: "There is no such page.",
    405: "This address does not do that.",
    413: "What was sent is too large.",
    429: "These were too many tries: wait a little.",
    500: "The server made a mistake; its log says which.",
    503: "The server cannot do this now.",
}


def page_html(page: Page, visit: Visit, body: str) -> str:
    """Return a whole page; it blocks for the open alerts, so on a thread."""
    from dlrover_nb.dashboard.pages import PAGES  # noqa: PLC0415 - pages are drawn in this frame

    links = "".join(_link(each, page, visit) for each in PAGES if each.is_listed)
    top = (
        '<a class="dl-skip" href="#content">Skip to the content</a><header class="dl-top">'
        f'<span class="dl-brand">dlrover-nb</span><nav aria-label="Pages"><ul>{links}</ul></nav>'
        f"{_clusters(page, visit)}{_person(visit)}</header>"
    )
    content = f"<h1>{escape(page.title)}</h1>{_alerts(page, visit)}{body}"
    return document(page.title, f'{top}<main id="content" tabindex="-1">{content}</main>', root=visit.root)


def _alerts(page: Page, visit: Visit) -> str:
    """Return the strip of open alerts; the page that lists them all has none."""
    from dlrover_nb.dashboard.alerts import views  # noqa: PLC0415 - its page is drawn in this frame

    if page is views.PAGE:
        return ""
    try:
        return views.alerts_strip(visit)
    except BackendError as error:
        return block_html(Paragraph(f"The alerts can not be read now: {error}", Tone.WARNING))


def document(title: str, content: str, *, root: str) -> str:
    """Return a document of HTML around what a page shows."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escape(title)} - dlrover-nb</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<link rel="icon" href="{escape(root)}/static/icon.svg" type="image/svg+xml">'
        f'<link rel="stylesheet" href="{escape(root)}/static/dashboard.css"></head>'
        f'<body class="dl-page">{content}</body></html>'
    )


def plain_html(title: str, body: str, *, root: str) -> str:
    """Return a page for a person who is not signed in: no navigation."""
    content = f'<p class="dl-brand">dlrover-nb</p><h1>{escape(title)}</h1>{body}'
    return document(title, f'<main id="content" class="dl-plain">{content}</main>', root=root)


def failure_html(status: int, message: str, *, root: str) -> str:
    """Return the page of an answer that is an error."""
    text = message or _MEANING.get(status) or f"{_phrase(status)}."
    home = f'<p><a href="{escape(root)}/">Go to the first page</a></p>'
    return plain_html(
        f"{status} {_phrase(status)}", block_html(Paragraph(text, Tone.WARNING)) + home, root=root
    )


def error_html(error: DlroverError) -> str:
    """Return an error as the content of a page."""
    return block_html(Paragraph(str(error), Tone.WARNING))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"


def _link(page: Page, shown: Page, visit: Visit) -> str:
    current = ' aria-current="page"' if page is shown else ""
    same = _query(visit.query["cluster"]) if "cluster" in visit.query else ""
    return f'<li><a href="{escape(visit.root)}/{page.path}{same}"{current}>{escape(page.title)}</a></li>'


def _query(cluster: str) -> str:
    return escape(f"?cluster={quote(cluster, safe='')}")


def _clusters(page: Page, visit: Visit) -> str:
    """Return the choice of a cluster, where there are several: links, as each has an address."""
    if len(visit.team.clusters) < 2:
        return ""
    shown = ' aria-current="true"'
    links = "".join(
        f'<li><a href="{escape(visit.root)}/{page.path}{_query(key)}"{shown if key == visit.cluster else ""}>'
        f"{escape(key)}</a></li>"
        for key in visit.team.clusters
    )
    label = '<span class="dl-label">Cluster</span>'
    return f'<nav aria-label="Clusters" class="dl-clusters">{label}<ul>{links}</ul></nav>'


def _person(visit: Visit) -> str:
    """Return who is signed in, as what, and the way out."""
    namespace = visit.team.clusters[visit.cluster].namespace if visit.cluster in visit.team.clusters else ""
    role = visit.person.role_in(namespace)
    leave = (
        f'<form method="post" action="{escape(visit.root)}/sign-out">'
        f'<input type="hidden" name="csrf" value="{escape(visit.csrf)}"><button>Sign out</button></form>'
        if visit.can_leave
        else ""
    )
    return (
        f'<div class="dl-person"><span class="dl-name">{escape(visit.person.name)}</span> '
        f'<span class="dl-role">{escape(role or "no role here")}</span>{leave}</div>'
    )
