"""A team's server for tests: Tornado on a free loopback port, with a simulated cluster and people of all roles.

A person signs in with the header ``X-Test-Person``: how a real sign-in works is not the subject of these tests.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from waiting import until

from dlrover_nb.core.connect import connect
from dlrover_nb.core.structs.bounds import PlanBounds
from dlrover_nb.core.structs.job import JobSpec
from dlrover_nb.core.structs.people import AccessRole, Grant, Person
from dlrover_nb.core.structs.resources import ResourcePlan, RolePlan
from dlrover_nb.dashboard.clusters import WatchedCluster

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tornado.httputil import HTTPServerRequest

    from dlrover_nb.core.client.handle import JobHandle

PLAN = ResourcePlan(RolePlan(1, 1.0, 4096), RolePlan(1, 1.0, 8192))
BOUNDS = PlanBounds(max_workers=4, max_ps=2, worker_cpus=(1.0, 2.0), ps_cpus=(1.0, 2.0))
HEADER = "X-Test-Person"
NAMESPACE = "ads"
PEOPLE = {
    "vera": Person("vera", grants=(Grant(AccessRole.VIEWER),)),
    "olaf": Person("olaf", grants=(Grant(AccessRole.OPERATOR, NAMESPACE),)),
    "otto": Person("otto", grants=(Grant(AccessRole.OPERATOR),)),
    "anna": Person("anna", grants=(Grant(AccessRole.ADMIN),)),
    "adam": Person("adam", grants=(Grant(AccessRole.ADMIN),)),
    "nora": Person("nora"),
}


class ByHeader:
    """Signs in whom the header names."""

    page = ""

    def __init__(self, people: Mapping[str, Person] = PEOPLE) -> None:
        self.people = dict(people)

    def identify(self, request: HTTPServerRequest) -> Person | None:
        return self.people.get(request.headers.get(HEADER, ""))

    def known(self, name: str) -> Person | None:
        return self.people.get(name)

    def form_key(self, request: HTTPServerRequest) -> str:
        return f"secret of {request.headers.get(HEADER, '')}"


@dataclass(frozen=True)
class Answer:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(frozen=True)
class Client:
    """Sends requests to a server; follows no redirect by itself but those of GET."""

    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def as_person(self, name: str) -> Client:
        return Client(self.url, {HEADER: name})

    def with_headers(self, **headers: str) -> Client:
        return Client(self.url, self.headers | {k.replace("_", "-"): v for k, v in headers.items()})

    def get(self, path: str) -> Answer:
        return self.send("GET", path)

    def post(self, path: str, body: object) -> Answer:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        kind = {} if "Content-Type" in self.headers else {"Content-Type": "application/json"}
        return self.send("POST", path, sent, kind)

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        request = urllib.request.Request(
            self.url + path, body, self.headers | dict(headers or {}), method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answered:
                return Answer(answered.status, answered.headers, answered.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, error.headers, error.read().decode())


def csrf_of(name: str) -> str:
    """Return the token of this person's forms."""
    return hmac.new(f"secret of {name}".encode(), b"form", "sha256").hexdigest()


def by(client: Client, name: str) -> Client:
    """Return a client that a person's browser might be: it sends the token of their forms."""
    return client.as_person(name).with_headers(X_CSRF_Token=csrf_of(name))


class Served:
    """Tornado with these handlers on a thread of its own, until `close`."""

    def __init__(self, handlers: list[Any]) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.url = asyncio.run_coroutine_threadsafe(self._begin(handlers), self._loop).result(30)

    async def _begin(self, handlers: list[Any]) -> str:
        (socket,) = bind_sockets(0, "127.0.0.1")
        self._server = HTTPServer(Application(handlers, log_function=lambda _: None))
        self._server.add_sockets([socket])
        return f"http://127.0.0.1:{socket.getsockname()[1]}"

    async def _end(self) -> None:
        self._server.stop()
        await self._server.close_all_connections()
        await self._loop.shutdown_default_executor()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(30)
        self._loop.close()


def simulated_cluster(*, namespace: str = "", speed: float = 600.0) -> WatchedCluster:
    """Return a watched simulated cluster; end its `core` after it."""
    return WatchedCluster(connect("sim", machines=4, speed=speed), namespace=namespace, period_s=0.1)


def submitted(cluster: WatchedCluster, name: str, *, proposes: bool = True, **fields: Any) -> JobHandle:
    """Return a job that trains, once it has a proposal."""
    spec = JobSpec(name, plan=PLAN, bounds=BOUNDS, n_epoch=100_000, **fields)
    handle = cluster.core.submit(spec)
    if proposes:
        until(lambda: handle.snapshot().open_proposal, f"a proposal of {name}")
    until(lambda: any(job.name == name for job in cluster.jobs().jobs), f"{name} in the list")
    return handle
