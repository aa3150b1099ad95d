"""What the tests of pages share: clusters of in-process masters, people by cookie, a server, a client."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

import builders
from chromium import free_port
from masters import Master
from waiting import LIMIT_S, until

from dlrover_nb.core.client.handle import JobHandle
from dlrover_nb.core.errors import BackendError, NotFoundError
from dlrover_nb.core.structs.capacity import Capacity, NodeShape
from dlrover_nb.core.structs.job import JobPhase
from dlrover_nb.core.structs.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.summary import summarize
from dlrover_nb.dashboard.clusters import WatchedCluster
from dlrover_nb.dashboard.server import DashboardServer, serve
from dlrover_nb.dashboard.settings import ServeSettings
from dlrover_nb.dashboard.team import Team

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.structs.decisions import Decision
    from dlrover_nb.core.structs.snapshot import JobSnapshot
    from dlrover_nb.core.structs.summary import JobSummary

VIEWER, OPERATOR, ADMIN = (
    Person(name, grants=(Grant(role),))
    for name, role in (("vera", AccessRole.VIEWER), ("otto", AccessRole.OPERATOR), ("ada", AccessRole.ADMIN))
)
SECOND = Person("olga", grants=(Grant(AccessRole.OPERATOR),))
PEOPLE = {person.name: person for person in (VIEWER, OPERATOR, ADMIN, SECOND)}


class CookieSignIn:
    """A sign-in that believes a cookie with a name: only for tests, where nobody lies."""

    page = ""

    def __init__(self, people: dict[str, Person] = PEOPLE) -> None:
        self.people = dict(people)

    def identify(self, request: HTTPServerRequest) -> Person | None:
        return self.people.get(self._name(request))

    def form_key(self, request: HTTPServerRequest) -> str:
        return f"secret of {self._name(request)}"

    def _name(self, request: HTTPServerRequest) -> str:
        cookie = request.cookies.get("who")
        return cookie.value if cookie else ""


class JobMaster(Master):
    """A master that can be stopped, and that decides nothing while it is away."""

    def decide(self, decision: Decision) -> Decision:
        if not self.reachable:
            raise BackendError("the master does not answer; it is asked again")
        return super().decide(decision)

    def stop(self, by: str, why: str) -> None:
        message = f"stopped by {by}{why and ': ' + why}"
        self.state = replace(self.state, phase=JobPhase.STOPPED, message=message)


class MastersCluster:
    """A cluster of in-process masters."""

    simulated, description = False, "masters of a test"

    def __init__(self, *masters: JobMaster) -> None:
        self.masters = {master.state.spec.name: master for master in masters}
        self.away = ""
        self.further: tuple[JobSummary, ...] = ()  # lines of jobs that are no more than that

    def capacity(self) -> Capacity:
        return Capacity((NodeShape(8, 32768),))

    def live_jobs(self) -> tuple[JobSummary, ...]:
        if self.away:
            raise BackendError(self.away)
        masters = [master for master in list(self.masters.values()) if master.reachable]
        return (*(summarize(master.snapshot()) for master in masters), *self.further)

    def job(self, name: str) -> JobHandle:
        if name not in self.masters:
            raise NotFoundError(f"no job {name!r} here")
        return JobHandle(name, self.masters[name], user="server")


def job_snapshot(name: str = "quick-start", *, owner: str = "ada", **changes: object) -> JobSnapshot:
    """Return the snapshot of a job by another name."""
    base = builders.snapshot(**changes)
    proposals = tuple(replace(each, job=name) for each in base.proposals)
    return replace(base, spec=replace(base.spec, name=name, owner=owner), proposals=proposals)


def master_of(name: str = "quick-start", **changes: object) -> JobMaster:
    return JobMaster(job_snapshot(name, **changes))


@dataclass(frozen=True)
class Answer:
    """An answer of the server."""

    status: int
    headers: dict[str, str]
    text: str


class Client:
    """Somebody with a browser that follows no redirect by itself."""

    def __init__(self, url: str, who: str) -> None:
        self.url, self.who = url, who

    def get(self, path: str) -> Answer:
        return self._ask("GET", path, None)

    def post(self, path: str, form: dict[str, str] | list[tuple[str, str]]) -> Answer:
        return self._ask("POST", path, urlencode(form))

    def csrf(self, path: str) -> str:
        """Return the token that the forms of a page hold."""
        found = re.search(r'name="csrf" value="([^"]+)"', self.get(path).text)
        assert found, "the page holds no form"
        return found[1]

    def _ask(self, method: str, path: str, body: str | None) -> Answer:
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        headers = {"Cookie": f"who={self.who}"}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.request(method, f"/{path}", body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()


class Running:
    """The real server on a thread of its own; `stop` and `start` again keep the port."""

    def __init__(self, team: Team, sign_in: CookieSignIn, settings: ServeSettings) -> None:
        self._team, self._sign_in, self.port = team, sign_in, free_port()
        self._settings = replace(settings, port=self.port)
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def start(self) -> None:
        ready = threading.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve(ready)), name="pages-of-a-test"
        )
        self._thread.start()
        assert ready.wait(LIMIT_S)

    async def _serve(self, ready: threading.Event) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        await serve(
            lambda: DashboardServer(self._team, self._sign_in, self._settings),
            lambda _: ready.set(),
            self._over,
        )

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive()


@contextmanager
def running(
    team: Team, sign_in: CookieSignIn | None = None, settings: ServeSettings | None = None
) -> Iterator[Running]:
    """Serve a team's pages on a free port of loopback."""
    server = Running(team, sign_in or CookieSignIn(), settings or ServeSettings())
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def team_of(folder: Path, *clusters: object, **options: object) -> Iterator[Team]:
    """Give a team whose clusters are ``a``, ``b``, … and whose records lie in a folder."""
    watched = {
        key: WatchedCluster(cluster, period_s=0.05)  # type: ignore[arg-type]  # as far as pages use one
        for key, cluster in zip("abcdef", clusters, strict=False)
    }
    for each in watched.values():
        until(lambda each=each: each.jobs().heard_s is not None or each.jobs().error, what="the list of jobs")
    team = Team(
        watched, lambda: builders.START_S + 1000, url=f"sqlite:///{folder / 'team.sqlite'}", **options
    )  # type: ignore[arg-type]
    try:
        yield team
    finally:
        team.close()
