"""The frame of every page: head, navigation, who is signed in, heading."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

from dlrover_nb.core.errors import BackendError
from dlrover_nb.dashboard.rendering import drawn, render
from dlrover_nb.widgets.blocks import Paragraph, Tone

if TYPE_CHECKING:
    from markupsafe import Markup

    from dlrover_nb.core.errors import DlroverError
    from dlrover_nb.dashboard.page import Page, Visit

# What each status means to a person; another one is told in the words of the standard.
_MEANING = {
    400: "The server does not understand this request.",
    401: "You are not signed in.",
    403: "You may not do this.",
    404: "There is no such page.",
    405: "This address does not do that.",
    413: "What you sent is too large.",
    429: "Too many tries: wait a little.",
    500: "The server made a mistake; its log says which.",
    503: "The server cannot do this now.",
}


def page_html(page: Page, visit: Visit, body: Markup) -> Markup:
    """Return a whole page; it blocks for the open alerts, so on a thread."""
    from dlrover_nb.dashboard.pages import PAGES  # noqa: PLC0415 - pages are drawn in this frame

    clusters = visit.team.clusters
    namespace = clusters[visit.cluster].namespace if visit.cluster in clusters else ""
    return render(
        "page.html",
        title=" ".join(filter(None, (page.title, visit.query.get(page.subject)))),
        heading=page.title,
        root=visit.root,
        body=body,
        page=page,
        visit=visit,
        pages=[each for each in PAGES if each.is_listed],
        query=_query(visit.query["cluster"]) if "cluster" in visit.query else "",
        clusters=[(key, _query(key)) for key in clusters],
        role=visit.person.role_in(namespace),
        alerts=_alerts(page, visit),
    )


def _query(cluster: str) -> str:
    return f"?cluster={quote(cluster, safe='')}"


def _alerts(page: Page, visit: Visit) -> Markup | str:
    """Return the strip of open alerts; the page that lists them all has none."""
    from dlrover_nb.dashboard.alerts import views  # noqa: PLC0415 - its page is drawn in this frame

    if page is views.PAGE:
        return ""
    try:
        return views.alerts_strip(visit)
    except BackendError as error:
        return drawn([Paragraph(f"The alerts can not be read now: {error}", Tone.WARNING)])


def plain_html(title: str, body: Markup, *, root: str) -> Markup:
    """Return a page for a person who is not signed in: no navigation."""
    return render("plain.html", title=title, body=body, root=root)


def failure_html(status: int, message: str, *, root: str) -> Markup:
    """Return the page of an answer that is an error."""
    text = message or _MEANING.get(status) or f"{_phrase(status)}."
    body = render("failure.html", text=Paragraph(text, Tone.WARNING), root=root)
    return plain_html(f"{status} {_phrase(status)}", body, root=root)


def error_html(error: DlroverError) -> Markup:
    """Return an error as the content of a page."""
    return drawn([Paragraph(str(error), Tone.WARNING)])


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
