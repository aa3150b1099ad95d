"""A dashboard for tests: the real server on a free port of loopback, people of all roles, and who asks it.

A person signs in with the header ``X-Person`` or the cookie ``who`` (`ByName`): how a real sign-in works is the
subject of the tests in ``sign_in``, which use `with_people` and `Visitor`.
"""

from __future__ import annotations

import asyncio
import hmac
import html
import http.client
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from dlrover_nb.core.backends.simulated.assumptions import simulate
from dlrover_nb.core.clock import SystemClock
from dlrover_nb.core.structs.decisions.people import AccessRole, Grant, Person
from dlrover_nb.dashboard.common.clusters import WatchedCluster
from dlrover_nb.dashboard.common.team import Team
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.sign_in import OwnAccount
from dlrover_nb.dashboard.sign_in.users import User, hashed, write_users
from dlrover_nb.dashboard.sign_in_pages.ways import way_of
from support.waiting import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tornado.httputil import HTTPServerRequest

HEADER, COOKIE = "X-Person", "who"
NAMESPACE = "ads"


def person(name: str, role: AccessRole | None = None, namespace: str | None = None) -> Person:
    """Return a person with a role everywhere, or in one namespace."""
    if role is None:
        return Person(name)
    return Person(name, grants=(Grant(role) if namespace is None else Grant(role, namespace),))


VIEWER, OPERATOR, SECOND, ADMIN, NOBODY = (
    person("vera", AccessRole.VIEWER),
    person("otto", AccessRole.OPERATOR),
    person("olga", AccessRole.OPERATOR),
    person("ada", AccessRole.ADMIN),
    person("nora"),
)
FURTHER = (
    person("olaf", AccessRole.OPERATOR, NAMESPACE),
    person("anna", AccessRole.ADMIN),
    person("adam", AccessRole.ADMIN),
)
PEOPLE = {each.name: each for each in (VIEWER, OPERATOR, SECOND, ADMIN, NOBODY, *FURTHER)}


class ByName:
    """A sign-in that believes whom a header or a cookie names: only for tests, where nobody lies.

    Parameters
    ----------
    people
        Whom it knows.
    unnamed
        Who asks where a request names nobody; empty: somebody who is not signed in.
    """

    page = way_in = ""  # where people sign in: nowhere

    def __init__(self, people: Iterable[Person] = tuple(PEOPLE.values()), *, unnamed: str = "") -> None:
        self.people = {each.name: each for each in people}
        self._unnamed = unnamed

    def identify(self, request: HTTPServerRequest) -> Person | None:
        return self.known(self._name(request))

    def known(self, name: str) -> Person | None:
        return self.people.get(name)

    def by_secret(self, secret: str) -> Person | None:  # noqa: ARG002 - of the protocol
        return None

    def form_key(self, request: HTTPServerRequest) -> str:
        return f"secret of {self._name(request)}"

    def _name(self, request: HTTPServerRequest) -> str:
        cookie = request.cookies.get(COOKIE)
        return request.headers.get(HEADER) or (cookie.value if cookie else self._unnamed)


def csrf_of(name: str) -> str:
    """Return the token of the forms of somebody whom `ByName` signs in."""
    return hmac.new(f"secret of {name}".encode(), b"form", "sha256").hexdigest()


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

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def asked(port: int, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Answer:
    """Send one request to a server on loopback; no redirect is followed."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LIMIT_S)
    try:
        connection.request(method, path, body, dict(headers))
        response = connection.getresponse()
        return Answer(response.status, response.headers, response.read().decode("utf-8", "replace"))
    finally:
        connection.close()


@dataclass(frozen=True)
class Client:
    """Somebody with a browser or a program that follows no redirect by itself; `who` is nobody by default."""

    url: str
    who: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def as_person(self, name: str) -> Client:
        return Client(self.url, name)

    def with_headers(self, **headers: str) -> Client:
        return replace(self, headers=self.headers | {k.replace("_", "-"): v for k, v in headers.items()})

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def post(self, path: str, body: object) -> Answer:
        """Send JSON."""
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if "Content-Type" in self.headers else {"Content-Type": "application/json"}
        return self.send("POST", path, sent, kind)

    def post_form(self, path: str, form: Mapping[str, str] | list[tuple[str, str]]) -> Answer:
        """Send a form."""
        kind = {"Content-Type": "application/x-www-form-urlencoded"}
        return self.send("POST", path, urlencode(form).encode(), kind)

    def csrf(self, path: str) -> str:
        """Return the token that the forms of a page hold."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path).text)
        assert found, "the page holds no form"
        return found[1]

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send a request; `path` may begin with the root."""
        parts = urlsplit(self.url)
        who = {HEADER: self.who} if self.who else {}
        whole = f"{parts.path.rstrip('/')}/{path.removeprefix('/')}"
        assert parts.port
        return asked(parts.port, method, whole, body, who | self.headers | dict(headers or {}))


def by(client: Client, name: str) -> Client:
    """Return a client that a person's browser might be: it sends the token of their forms."""
    return client.as_person(name).with_headers(X_CSRF_Token=csrf_of(name))


class Dashboard:
    """A server on a thread with an event loop of its own; `stop` and then `start` keep the port."""

    def __init__(self, team, sign_in, settings, further=(), **options) -> None:
        self.team, self._made = team, (sign_in, further, options)
        self._settings = replace(settings, port=0)
        self.start()
        self._settings = replace(self._settings, port=self.port)

    @property
    def url(self) -> str:
        """Its address, with the slash at its end."""
        return self.server.url

    @property
    def port(self) -> int:
        return self.server.port

    def start(self) -> None:
        listening, failed = [], []

        def main():
            try:
                asyncio.run(self._serve(listening.append))
            except BaseException as error:
                failed.append(error)
                raise

        self._thread = threading.Thread(target=main, name="dashboard-of-a-test")
        self._thread.start()
        until(lambda: listening or failed or not self._thread.is_alive(), what="the server")
        assert listening, failed
        self.server = listening[0]

    async def _serve(self, ready) -> None:
        self.loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        sign_in, further, options = self._made
        await serve(
            lambda: DashboardServer(self.team, sign_in, self._settings, further, **options), ready, self._over
        )

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the server did not end"

    def ask(self, path, *, method="GET", body=None, form=None, headers=None, cookies=None) -> Answer:
        """Send one request and follow no redirect; `path` begins with the root, `form` is sent as one."""
        sent = {"Host": urlsplit(self.url).netloc, **(headers or {})}
        if cookies:
            sent["Cookie"] = "; ".join(f"{name}={value}" for name, value in cookies.items())
        if form is not None:
            method, body = "POST", urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        return asked(self.port, method, path, body, sent)

    def on_loop(self, function):
        """Call a function, or await its coroutine, on the server's event loop; return what it returns."""

        async def call():
            result = function()
            return await result if asyncio.iscoroutine(result) else result

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(LIMIT_S)


@contextmanager
def running(team, sign_in=None, settings=None, further=(), **options):
    """Run a server for a team; give its `Dashboard`. Without a sign-in it serves the account of the tests."""
    dashboard = Dashboard(team, sign_in or OwnAccount(), settings or ServeSettings(), further, **options)
    try:
        yield dashboard
    finally:
        dashboard.stop()


@contextmanager
def serving(team, *people):
    """Run a server for a team; give its address. The first of the people asks where nobody is named."""
    known = people or (ADMIN, VIEWER, NOBODY)
    with running(team, ByName(known, unnamed=known[0].name)) as dashboard:
        yield dashboard.url.rstrip("/")


def fetch(address, person=""):
    """Return status, headers and text of an address."""
    parts = urlsplit(address)
    answer = asked(
        parts.port, "GET", address.partition(parts.netloc)[2], headers={HEADER: person} if person else {}
    )
    return answer.status, answer.headers, answer.text


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


@cache
def password_hash():
    """Return the hash of the password of all: it takes as long to make as it should."""
    return hashed(PASSWORD, "nobody")


def people(path, **roles):
    """Write a users file; each person has the role of that name everywhere, and the same password."""
    users = {name: User(password_hash(), grants=(Grant(AccessRole(role)),)) for name, role in roles.items()}
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
