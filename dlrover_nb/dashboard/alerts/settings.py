"""The settings of alerts, and what they start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dlrover_nb.core.structs.views.alerts import DEFAULT_RULES, AlertRules
from dlrover_nb.dashboard.alerts.loop import AlertLoop
from dlrover_nb.dashboard.alerts.outbox import Outbox
from dlrover_nb.dashboard.alerts.senders import Apprise, Webhook

if TYPE_CHECKING:
    from dlrover_nb.core.structs.views.alerts import Alert
    from dlrover_nb.dashboard.common.team import Team


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """What a server does about alerts.

    Parameters
    ----------
    rules
        When they begin and end.
    base_url
        Where people reach the dashboard, for links.
    webhook_url
        Of a receiver of all alerts; empty: none.
    webhook_secret
        Key of the signature that its calls have.
    apprise_urls
        Of other receivers, as the library apprise writes them.
    """

    rules: AlertRules = DEFAULT_RULES
    base_url: str = ""
    webhook_url: str = field(default="", repr=False)
    webhook_secret: str = field(default="", repr=False)
    apprise_urls: tuple[str, ...] = field(default=(), repr=False)


class Alerts:
    """The alerts of a server, from `begin` on: the loop and its outboxes.

    Raises
    ------
    InvalidValueError
        When a destination is none.
    """

    def __init__(self, team: Team, settings: AlertSettings) -> None:
        senders: list[Webhook | Apprise] = []
        if settings.webhook_url:
            senders.append(
                Webhook(settings.webhook_url, settings.webhook_secret, settings.base_url, team.now_s)
            )
        for place, url in enumerate(settings.apprise_urls, 1):
            senders.append(Apprise(place, url, settings.base_url))
        self._outboxes = [Outbox(sender) for sender in senders]
        self._loop = AlertLoop(team, settings.rules, self._send)

    def begin(self) -> None:
        """Begin to read the jobs."""
        self._loop.begin()

    def close(self) -> None:
        """End the loop, then the outboxes."""
        self._loop.close()
        for outbox in self._outboxes:
            outbox.close()

    def _send(self, alert: Alert) -> None:
        for outbox in self._outboxes:
            outbox.put(alert)
