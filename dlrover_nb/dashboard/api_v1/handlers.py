"""The handlers of the API, as the server takes them: its routes, their document, and a plain page of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.dashboard.api_v1.handler import Api, ApiHandler
from dlrover_nb.dashboard.api_v1.openapi import document
from dlrover_nb.dashboard.api_v1.routes import ROOT, ROUTES, by_path, pattern
from dlrover_nb.dashboard.api_v1.tokens import Tokens
from dlrover_nb.dashboard.frame.base_handler import PageHandler, PersonHandler
from dlrover_nb.dashboard.page import Page
from dlrover_nb.dashboard.rendering import drawn
from dlrover_nb.widgets.blocks import Facts, Heading, Paragraph, Table

if TYPE_CHECKING:
    from typing import Any

    from markupsafe import Markup

    from dlrover_nb.dashboard.api_v1.routes import Route
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.page import Visit
    from dlrover_nb.dashboard.sign_in import SignIn
    from dlrover_nb.widgets.blocks import Block


SIGN_IN = (
    "Sign in with a token, made on the server by the command below, and sent as Authorization: Bearer dlnb_… "
    "with each request. A token has a role, may be bound to a namespace, and ends; it can never do more than "
    "its owner can at the moment of the request."
)
COMMANDS = (
    "A command is refused unless it still fits what you saw: send the ETag of the job back as If-Match. Send "
    "an Idempotency-Key with it, and send the same key again when no answer came: it is done once. 202 says "
    "that a rule wants a second person, for whom the command waits."
)


class DocumentHandler(PersonHandler):
    """Answers with the OpenAPI document, which tells nothing about any job, so it needs no sign-in."""

    def prepare(self) -> None:
        """Let every client pass."""

    def get(self) -> None:
        """Write the document."""
        self.set_header("Content-Type", "application/json")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.write(document())


def body(visit: Visit) -> Markup:
    """Return the page of documentation."""
    address = f"{visit.root}{ROOT}"
    blocks: list[Block] = [
        Paragraph(SIGN_IN, code=("dlrover-nb server tokens add NAME --role viewer --days 30",)),
        Paragraph(COMMANDS),
        Paragraph(f"All of it as an OpenAPI 3.1 document: {address}/openapi.json"),
        Table(
            "Routes",
            ("method", "path", "what it does"),
            tuple((each.method, f"{ROOT}{each.path}", each.summary) for each in ROUTES),
        ),
        *(block for route in ROUTES for block in _route_blocks(route)),
    ]
    return drawn(blocks, level=2)


def _route_blocks(route: Route) -> tuple[Block, ...]:
    takes = ", ".join(route.query.__struct_fields__) or "nothing"  # type: ignore[attr-defined]  # each is a Struct
    headers = [*(["Idempotency-Key"] if route.changes else []), *(["If-Match"] if route.sees else [])]
    facts = Facts(
        (
            ("path", ", ".join(route.parameters) or "nothing"),
            ("query", takes),
            ("headers", ", ".join(headers) or "none"),
            ("body", _name(route.body)),
            ("answer", route.answer.__name__),
        )
    )
    return Heading(f"{route.method} {route.path}", route.name), Paragraph(route.summary), facts


def _name(kind: object) -> str:
    if kind is None:
        return "none"
    return getattr(kind, "__name__", None) or " or ".join(
        each.__name__
        for each in kind.__args__  # type: ignore[attr-defined]  # a union
    )


PAGE = Page("api/v1/docs", "API", body, is_listed=False)


def api_patterns(
    team: Team, sign_in: SignIn, *, api: Api | None = None
) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers of the API; `api`: with other limits or another clock."""
    shared: dict[str, Any] = {"team": team, "sign_in": sign_in}
    parts = api or Api(Tokens(CredentialStore(team.url), team.now_s), time.monotonic)
    return [
        (f"{ROOT}/openapi\\.json", DocumentHandler, shared),
        (f"{ROOT}/docs", PageHandler, {**shared, "page": PAGE}),
        *(
            (pattern(path), ApiHandler, {**shared, "api": parts, "routes": routes})
            for path, routes in by_path().items()
        ),
    ]
