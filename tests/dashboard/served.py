"""A server of the dashboard in the test's process: its pages, and people whom a header names."""

from __future__ import annotations

import asyncio
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from importlib.resources import files

from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, StaticFileHandler

from dlrover_nb.core.structs.people import AccessRole, Grant, Person
from dlrover_nb.dashboard.server import patterns

PERSON = "X-Person"
STATIC = str(files("dlrover_nb.dashboard") / "static")
ADA = Person("ada", grants=(Grant(AccessRole.OPERATOR),))
VIEWER = Person("vic", grants=(Grant(AccessRole.VIEWER),))
NOBODY = Person("nob")


class ByHeader:
    """A sign-in of tests: a header names the person; without one it is the first of those given."""

    page = ""  # where people sign in: nowhere

    def __init__(self, *people: Person) -> None:
        self._people = {person.name: person for person in people}

    def identify(self, request):
        return self._people.get(request.headers.get(PERSON, next(iter(self._people))))

    def form_key(self, request):
        return f"key of {request.headers.get(PERSON, '')}"


@contextmanager
def serving(team, *people, more=()):
    """Serve a team's pages on a free port of loopback; give the address."""
    ready, held = threading.Event(), {}

    async def run():
        held["stop"], held["loop"] = asyncio.Event(), asyncio.get_running_loop()
        static = (r"/static/(.*)", StaticFileHandler, {"path": STATIC})
        handlers = patterns(team, ByHeader(*(people or (ADA, VIEWER, NOBODY))))
        application = Application([*handlers, *more, static])
        server = HTTPServer(application)
        sockets = bind_sockets(0, "127.0.0.1")
        server.add_sockets(sockets)
        held["port"] = sockets[0].getsockname()[1]
        ready.set()
        await held["stop"].wait()
        server.stop()
        await server.close_all_connections()

    thread = threading.Thread(target=lambda: asyncio.run(run()), daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"http://127.0.0.1:{held['port']}"
    finally:
        held["loop"].call_soon_threadsafe(held["stop"].set)
        thread.join()


def fetch(address, person=""):
    """Return status, headers and text of an address."""
    request = urllib.request.Request(address, headers={PERSON: person} if person else {})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read().decode()
