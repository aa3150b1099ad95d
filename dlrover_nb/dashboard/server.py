"""The server: one Tornado process for pages, events, the API and its own health."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.dashboard.api_v1.handlers import api_patterns
from dlrover_nb.dashboard.handlers import PageHandler
from dlrover_nb.dashboard.pages import PAGES

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.dashboard.sign_in import SignIn
    from dlrover_nb.dashboard.team import Team


def patterns(team: Team, sign_in: SignIn) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers of all addresses, as Tornado takes them."""
    shared = {"team": team, "sign_in": sign_in}
    return [
        *((rf"/{page.path}", PageHandler, {**shared, "page": page}) for page in PAGES),
        *api_patterns(team, sign_in),
    ]
