"""A dashboard for tests: the real server on a free port of loopback, with a simulated cluster behind it."""

from __future__ import annotations

import asyncio
import html
import http.client
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import urlencode, urlsplit

from waiting import LIMIT_S, until

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.structs.people import AccessRole, Grant
from dlrover_nb.dashboard.clusters import WatchedCluster
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount
from dlrover_nb.dashboard.sign_in.users import User, hashed, write_users
from dlrover_nb.dashboard.sign_in_pages.ways import way_of
from dlrover_nb.dashboard.team import Team


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: http.client.HTTPMessage
    text: str

    @property
    def cookies(self) -> dict[str, str]:
        """The cookies that it sets, by name, as a client sends them back."""
        pairs = (each.partition(";")[0].partition("=") for each in self.headers.get_all("Set-Cookie", []))
        return {name: value for name, _, value in pairs}


class Dashboard:
    """A server that runs; `team`, `server` and its address `url`, with the slash at its end."""

    def __init__(self, server: DashboardServer, loop: asyncio.AbstractEventLoop) -> None:
        self.server, self.team, self.loop, self.url = server, server.team, loop, server.url

    @property
    def port(self) -> int:
        return self.server.port

    def ask(self, path, *, method="GET", body=None, form=None, headers=None, cookies=None) -> Answer:
        """Send one request and follow no redirect; `path` begins with the root, `form` is sent as one."""
        parts = urlsplit(self.url)
        sent = {"Host": parts.netloc, **(headers or {})}
        if cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        if form is not None:
            method, body = "POST", urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_S)
        try:
            connection.request(method, path, body=body, headers=sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read().decode("utf-8", "replace"))
        finally:
            connection.close()

    def on_loop(self, function):
        """Call a function, or await its coroutine, on the server's event loop; return what it returns."""

        async def call():
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(LIMIT_S)


@contextmanager
def running(team, sign_in=None, settings=None, further=(), forms_to=""):
    """Run a server for a team on a thread with an event loop of its own; give its `Dashboard`."""
    settings = replace(settings or ServeSettings(), port=0)
    sign_in = sign_in or OwnAccount()
    made, over = [], asyncio.Event()

    async def run():
        loop = asyncio.get_running_loop()
        await serve(
            lambda: DashboardServer(team, sign_in, settings, further, forms_to=forms_to),
            lambda server: made.append(Dashboard(server, loop)),
            over,
        )

    failed = []

    def main():
        try:
            asyncio.run(run())
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=main, name="dashboard-of-a-test")
    thread.start()
    until(lambda: made or failed or not thread.is_alive(), what="the server")
    assert made, failed
    dashboard = made[0]
    try:
        yield dashboard
    finally:
        dashboard.loop.call_soon_threadsafe(over.set)
        thread.join(LIMIT_S)
        assert not thread.is_alive(), "the server did not end"


def watched(*, machines=20, speed=10.0, namespace=""):
    """Return a simulated cluster that is watched."""
    return WatchedCluster(simulate(machines=machines, speed=speed), namespace=namespace)


def team_of(folder, clusters=None, **options):
    """Return a team with its database below a folder; one simulated cluster ``sim`` by default."""
    clusters = {"sim": watched()} if clusters is None else clusters
    team = Team(clusters, SystemClock().now_s, url=f"sqlite:///{folder / 'history.db'}", **options)
    for cluster in clusters.values():
        until(lambda cluster=cluster: cluster.jobs().heard_s is not None, what="the list of jobs")
    return team


def closed(team):
    """Close a team, and the simulated clusters behind it."""
    team.close()
    for cluster in team.clusters.values():
        cluster.core.shutdown(force=True)


PASSWORD = "correct horse battery"


class Visitor:
    """A browser without a screen: it keeps cookies, and signs in and out by the forms."""

    def __init__(self, dashboard: Dashboard, cookies=None) -> None:
        self.dashboard, self.cookies = dashboard, dict(cookies or {})
        self.root = urlsplit(dashboard.url).path.rstrip("/")

    def ask(self, path, **options) -> Answer:
        answer = self.dashboard.ask(path, cookies=self.cookies, **options)
        self.cookies.update(answer.cookies)
        self.cookies = {name: value for name, value in self.cookies.items() if value and value != '""'}
        return answer

    def field(self, name, path) -> str:
        """Return the value of a hidden field of a page."""
        return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', self.ask(path).text)[1])

    def sign_in(self, name="ada", password=PASSWORD, wanted="/") -> Answer:
        path = f"{self.root}/sign-in?{urlencode({'next': wanted})}"
        token = self.field("csrf", path)
        form = {"csrf": token, "next": wanted, "name": name, "password": password}
        return self.ask(f"{self.root}/sign-in", form=form)

    def sign_out(self) -> Answer:
        token = self.field("csrf", f"{self.root}/jobs")
        return self.ask(f"{self.root}/sign-out", form={"csrf": token})

    @property
    def session(self) -> str:
        """The secret of the session; empty: there is none."""
        return next((value for name, value in self.cookies.items() if "dlrover-session" in name), "")


HASH = hashed(PASSWORD, "nobody")


def people(path, **roles):
    """Write a users file; each person has the role of that name everywhere, and the same password."""
    users = {name: User(HASH, grants=(Grant(AccessRole(role)),)) for name, role in roles.items()}
    write_users(path, users)
    return path


@contextmanager
def with_people(team, folder, settings=None, **roles):
    """Run a server whose people have these roles."""
    path = people(folder / "users.yaml", **(roles or {"ada": "operator", "vic": "viewer"}))
    settings = replace(settings or ServeSettings(), users=str(path))
    way = way_of(settings, team)
    try:
        with running(team, way.sign_in, settings, way.patterns) as dashboard:
            yield dashboard
    finally:
        way.close()
