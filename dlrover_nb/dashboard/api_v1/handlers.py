"""The handlers of the API, as the server takes them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from dlrover_nb.core.history.stores.credentials import CredentialStore
from dlrover_nb.dashboard.api_v1 import docs
from dlrover_nb.dashboard.api_v1.handler import Api, ApiHandler
from dlrover_nb.dashboard.api_v1.routes import ROOT, by_path, pattern
from dlrover_nb.dashboard.api_v1.tokens import Tokens
from dlrover_nb.dashboard.frame.base_handler import PageHandler

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn


def api_patterns(
    team: Team, sign_in: SignIn, *, api: Api | None = None
) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers of the API; `api`: with other limits or another clock."""
    shared: dict[str, Any] = {"team": team, "sign_in": sign_in}
    parts = api or Api(Tokens(CredentialStore(team.url), team.now_s), time.monotonic)
    return [
        (f"{ROOT}/openapi\\.json", docs.DocumentHandler, shared),
        (f"{ROOT}/docs", PageHandler, {**shared, "page": docs.PAGE}),
        *(
            (pattern(path), ApiHandler, {**shared, "api": parts, "routes": routes})
            for path, routes in by_path().items()
        ),
    ]
