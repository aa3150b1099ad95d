"""The verb of the team's dashboard in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.magics.flags import JOB
from dlrover_nb.magics.verb import Verb, argument

if TYPE_CHECKING:
    from dlrover_nb.api.views.page_view import PageView
    from dlrover_nb.magics.commands import Commands

_ONCE = "the link is for one browser, within ten minutes; run the cell again for another"
SERVE = (JOB, argument("--stop", action="store_true", help="end the dashboard that this notebook started"))


def serve(commands: Commands, *, job: str | None, stop: bool) -> PageView:
    """Start the dashboard beside this kernel, or find it again; at a job where one is named."""
    from dlrover_nb.api.views.page_view import PageView  # noqa: PLC0415 - see the package
    from dlrover_nb.dashboard.child import start  # noqa: PLC0415 - as above

    session = commands.session
    served = session.dashboard
    if stop:
        if served is None or not served.is_running:
            raise NotFoundError("this notebook has started no dashboard that runs")
        served.stop()
        session.dashboard = None
        return PageView("Dashboard", "", "the dashboard has ended; jobs go on")
    if served is None or not served.is_running:
        served = session.dashboard = start(_words(commands))
    if job is None:
        words = f"{_ONCE}; the dashboard ends with this kernel, or with `%dlrover server --stop`"
        return PageView("Dashboard", served.link(), words)
    commands.job(job)
    return PageView(f"Dashboard of {job}", served.link(f"job?{urlencode({'name': job})}"), _ONCE)


def _words(commands: Commands) -> tuple[str, ...]:
    """Return the flags by which the server finds the cluster of this notebook."""
    session = commands.session
    if session.cluster is None:
        return ()
    if session.cluster.simulated:
        raise InvalidValueError(
            "a simulated cluster lives in this kernel, where no server finds it; use `%dlrover jobs --live`"
        )
    word = commands.address_of_cluster()
    return ("--cluster", word) if word else ()


VERBS = (Verb("serve", "start the team's dashboard beside this notebook", serve, SERVE, "quick-start"),)
