"""Runs a server in this process: opens its clusters and its database, and ends in order.

It never starts a cluster: what it watches runs already, and goes on when it ends. A signal ends it within
seconds; no thread and no child of it is left.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import ExitStack
from dataclasses import replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.waits import tell
from dlrover_nb.core.client.cluster import KnowsPeople
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.commands.second_person import Rules
from dlrover_nb.core.connect import connect
from dlrover_nb.core.connect.kinds import read_address
from dlrover_nb.core.errors import InvalidValueError, NotFoundError
from dlrover_nb.dashboard.alerts.settings import Alerts
from dlrover_nb.dashboard.common.acting import ActingClusters
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.sign_in.by_secret import published
from dlrover_nb.dashboard.sign_in_pages.ways import way_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dlrover_nb.core.client.cluster import Cluster
    from dlrover_nb.dashboard.alerts.settings import AlertSettings
    from dlrover_nb.dashboard.settings import ServeSettings

logger = logging.getLogger(__name__)

OF_THIS_MACHINE = ("ray", "local")


def run(
    settings: ServeSettings,
    ready: Callable[[DashboardServer], None],
    *,
    until_eof: bool = False,
    is_demo: bool = False,
) -> None:
    """Serve until a signal to end.

    Parameters
    ----------
    settings
        Of the server.
    ready
        Is called once it listens.
    until_eof
        Whether the end of the standard input ends it too: that of a child ends with its parent.
    is_demo
        Whether it serves simulated jobs, which end with it, and keeps nothing.

    Raises
    ------
    NotFoundError
        When a cluster that was named does not run.
    BackendError
        When a cluster or the database cannot be reached, or the address cannot be listened to.
    InvalidValueError
        When the file of the people is malformed, or a word names no cluster.
    """
    with ExitStack() as to_close:
        if is_demo:
            place = to_close.enter_context(TemporaryDirectory(prefix="dlrover-demo-"))
            settings = replace(settings, history=f"sqlite:///{place}/history.db")
        team = _team(settings, _demo(to_close) if is_demo else opened(settings.clusters), to_close)
        alerts = Alerts(team, _alert_settings(settings))
        to_close.callback(alerts.close)
        way = way_of(settings, team)
        to_close.callback(way.close)

        def server() -> DashboardServer:
            listening = DashboardServer(team, way.sign_in, settings, way.patterns, forms_to=way.forms_to)
            alerts.begin()  # a second server on a port that is taken raises none
            return listening

        def listens(server: DashboardServer) -> None:
            if server.own is not None:
                to_close.enter_context(published(server.own, server.port))
            ready(server)

        asyncio.run(_until_signal(server, listens, until_eof=until_eof))


def _alert_settings(settings: ServeSettings) -> AlertSettings:
    """Return the settings of alerts; where they name no address for links, that of the server."""
    public = settings.url.rstrip("/").removesuffix(settings.prefix)
    return replace(
        settings.alerts, base_url=settings.alerts.base_url or (public and public + settings.prefix)
    )


async def _until_signal(
    server_of: Callable[[], DashboardServer], ready: Callable[[DashboardServer], None], *, until_eof: bool
) -> None:
    over, loop = asyncio.Event(), asyncio.get_running_loop()

    def listens(server: DashboardServer) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):  # now: Panel has set one of its own
            loop.add_signal_handler(each, over.set)
        if until_eof:
            loop.add_reader(0, lambda: None if os.read(0, 4096) else _ended(loop, over))
        ready(server)

    await serve(server_of, listens, over)


def _ended(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    loop.remove_reader(0)
    over.set()


def _demo(to_close: ExitStack) -> Mapping[str, Cluster]:
    """Return the simulated cluster of a demo, which ends with the server."""
    from dlrover_nb.dashboard.demo_cluster import KEY, demo_cluster  # noqa: PLC0415 - for a demo alone

    tell("30 simulated jobs to have trained for a while")
    cluster = demo_cluster()
    tell("")
    to_close.callback(cluster.shutdown, force=True)
    return {KEY: cluster}


def _team(settings: ServeSettings, cores: Mapping[str, Cluster], to_close: ExitStack) -> Team:
    rules = Rules(settings.second_person_over_cost_per_hour, settings.second_person_actions)
    clusters: dict[str, WatchedCluster] = {}
    with ExitStack() as on_error:
        for key, core in cores.items():
            clusters[key] = WatchedCluster(core, namespace=core.namespace, acting=_acting(core, settings))
            on_error.callback(clusters[key].close)
        team = Team(clusters, SystemClock().now_s, url=settings.history, rules=rules)
        on_error.pop_all()
    to_close.callback(team.close)
    return team


def _acting(core: Cluster, settings: ServeSettings) -> ActingClusters | None:
    """Return the cluster as each person sees it, where people sign in and the cluster knows them."""
    if not (settings.has_sign_in and isinstance(core, KnowsPeople)):
        return None
    return ActingClusters(core, settings.impersonate_groups)


def opened(words: tuple[str, ...]) -> Mapping[str, Cluster]:
    """Return the clusters that words name; without words, what this machine has."""
    if len(set(words)) < len(words):
        raise InvalidValueError(f"each cluster is named once, got {', '.join(words)}; leave one out")
    return {word: _opened(word) for word in words} if words else _of_this_machine()


def _of_this_machine() -> dict[str, Cluster]:
    clusters = {}
    for word in OF_THIS_MACHINE:
        try:
            clusters[word] = _opened(word)
        except NotFoundError as error:
            logger.info("not watched: %s", error)
    return clusters


def _opened(word: str) -> Cluster:
    kind, address, options = read_address(word)
    return connect(kind, address, start=False, **options)
