"""Where an alert leads: the approve page for what waits for a person, else the page of the job."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from dlrover_nb.core.structs.views.alerts import AlertKind

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.alerts import Alert

SEPARATOR = "~"  # between the parts of an id of the approve page; no name of a job has one


def path_of(alert: Alert) -> str:
    """Return the path that an alert leads to, from the root of the dashboard on."""
    about = alert.about
    match alert.kind:
        case AlertKind.SECOND_PERSON:
            return f"/approve/{quote(alert.subject, safe='')}"
        case AlertKind.PROPOSAL:
            return approve_path(about.cluster, about.job, alert.subject)
        case _:
            return f"/job?{urlencode({'cluster': about.cluster, 'name': about.job})}"


def approve_path(cluster: str, job: str, proposal: str) -> str:
    """Return the path of the approve page of a proposal."""
    return f"/approve/{quote(SEPARATOR.join((cluster, job, proposal)), safe=SEPARATOR)}"
