"""The form that mutes a job for a person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tornado.web import HTTPError

from dlrover_nb.core.errors import DlroverError
from dlrover_nb.dashboard.alerts.muted import mute
from dlrover_nb.dashboard.frame.base_handler import PersonHandler

if TYPE_CHECKING:
    from typing import Any

    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.sign_in import SignIn


class MuteHandler(PersonHandler):
    """Mutes a job, and leads back to the alerts."""

    async def post(self) -> None:
        """Keep until when."""
        cluster, job, hours = (self.get_body_argument(name, "") for name in ("cluster", "job", "hours"))
        notes, person, at_s = self.team.notes, self.person.name, self.team.now_s()
        try:
            await asyncio.get_running_loop().run_in_executor(
                None, lambda: mute(notes, person, cluster, job, hours=hours, at_s=at_s)
            )
        except DlroverError as error:
            raise HTTPError(422, "%s", error) from error
        self.redirect(f"{self.root}/alerts", status=303)


def alert_patterns(team: Team, sign_in: SignIn) -> list[tuple[str, Any, dict[str, Any]]]:
    """Return the handlers of alerts beside their page, as the server takes them."""
    return [("/alerts/mute", MuteHandler, {"team": team, "sign_in": sign_in})]
