"""Whether the server lives, and whether it can serve: for what starts it anew, and for what leads to it.

It lives as long as it answers. It is ready when its database answers and its clusters were heard lately: a
proxy then leads people to it. A cluster that is away makes it unready but is no reason to start it anew.
Neither needs a sign-in, and so neither tells a name.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from dlrover_nb.core.errors import BackendError
from dlrover_nb.dashboard.frame.base_handler import OwnHandler

if TYPE_CHECKING:
    from dlrover_nb.dashboard.common.team import Team


class Lives(OwnHandler):
    """Answers ``/healthz``."""

    def get(self) -> None:
        """Say that the process lives."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.write("ok\n")


class Ready(OwnHandler):
    """Answers ``/readyz``: 503 with the reasons while it cannot serve."""

    def initialize(self, team: Team, heard_s: float) -> None:
        """Take what is asked; a cluster must have been heard within `heard_s`."""
        self._team, self._heard_s = team, heard_s

    async def get(self) -> None:
        """Say whether it can serve."""
        reasons = why_not_ready(self._team, self._heard_s, time.monotonic())
        reasons += await asyncio.get_running_loop().run_in_executor(None, _database, self._team)
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.set_status(503 if reasons else 200)
        self.write("".join(f"{reason}\n" for reason in reasons or ("ok",)))


def why_not_ready(team: Team, heard_s: float, now_s: float) -> tuple[str, ...]:
    """Return which clusters were not heard lately; none: all were."""
    reasons = []
    for at, cluster in enumerate(team.clusters.values(), start=1):
        last_s = cluster.jobs().heard_s
        if last_s is None:
            reasons.append(f"cluster {at} was not heard yet")
        elif now_s - last_s > heard_s:
            reasons.append(f"cluster {at} was not heard for {now_s - last_s:.0f} s")
    return tuple(reasons)


def _database(team: Team) -> tuple[str, ...]:
    try:
        team.audit.head()
    except BackendError:
        return ("the database does not answer",)
    return ()
