"""The server: one Tornado process for pages, events, the API, Panel's documents and its own health.

It is Panel's server with our handlers as further patterns, so that one process, one port and one event loop
hold all of it. Several processes share the database and stand behind sticky sessions; Bokeh's own worker
processes are not used, as they outlive their parent.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import uuid
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from typing import TYPE_CHECKING

from tornado.ioloop import IOLoop, PeriodicCallback
from tornado.web import StaticFileHandler

from dlrover_nb.core.errors import BackendError
from dlrover_nb.dashboard.api_v1.handlers import api_patterns
from dlrover_nb.dashboard.frame.base_handler import FirstPage, NotHere, PageHandler
from dlrover_nb.dashboard.frame.entry_checks import CHECK_S, Door
from dlrover_nb.dashboard.frame.headers import LIVE, strict_headers
from dlrover_nb.dashboard.handlers.approve import approve_patterns
from dlrover_nb.dashboard.handlers.form_posts import (
    ActHandler,
    BatchHandler,
    FileHandler,
    SecondHandler,
    ViewsHandler,
    alert_patterns,
)
from dlrover_nb.dashboard.handlers.health import Lives, Ready
from dlrover_nb.dashboard.handlers.job_events import JobsEvents
from dlrover_nb.dashboard.handlers.page_files import FILES
from dlrover_nb.dashboard.handlers.prometheus import Metrics, MetricsHandler, read_token
from dlrover_nb.dashboard.pages import PAGES
from dlrover_nb.dashboard.sign_in.by_secret import OwnServer, SecretSignIn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from dlrover_nb.dashboard.api_v1.handler import Api
    from dlrover_nb.dashboard.common.team import Team
    from dlrover_nb.dashboard.settings import ServeSettings
    from dlrover_nb.dashboard.sign_in import SignIn

    Pattern = tuple[str, Any, dict[str, Any]]  # as Tornado takes it

logger = logging.getLogger(__name__)

STATIC = files("dlrover_nb.dashboard") / "static"
MIB = 2**20
MAX_BODY = MIB  # of a request: forms, commands, job files
MAX_MESSAGE = MIB  # of a websocket, from a page: an event of a widget
MAX_HEADERS = 32 * 1024
BODY_S = 30.0  # to send a body within
IDLE_S = 3600.0  # for a connection without a request
KEPT_S = 180  # a document whose page has lost its connection
PING_S = 25.0  # proxies end connections that are silent for a minute
N_THREAD = 64  # for pages: many may wait for a cluster that hangs, and the others must still be drawn
END_S = 3.0  # for requests that run when the server ends


def patterns(team: Team, sign_in: SignIn, api: Api | None = None) -> list[Pattern]:
    """Return the handlers of all addresses of the dashboard; `api`: with other limits."""
    shared = {"team": team, "sign_in": sign_in}
    return [
        *((rf"/{page.path}", PageHandler, {**shared, "page": page}) for page in PAGES),
        *api_patterns(team, sign_in, api=api),
        *approve_patterns(team, sign_in),
        *alert_patterns(team, sign_in),
        (r"/do", ActHandler, shared),
        (r"/batch", BatchHandler, shared),
        (r"/second", SecondHandler, shared),
        (r"/file", FileHandler, shared),
        (r"/views", ViewsHandler, shared),
        (r"/events/jobs", JobsEvents, shared),
        *((path, handler, shared) for path, handler in FILES),
    ]


def _own_patterns(team: Team, settings: ServeSettings) -> list[Pattern]:
    """Return the handlers that answer clients without a sign-in."""
    return [
        (r"/?", FirstPage, {"path": PAGES[0].path}),
        (r"/healthz", Lives, {}),
        (r"/readyz", Ready, {"team": team, "heard_s": settings.heard_s}),
        (r"/static/.*%00.*", NotHere, {}),  # Bokeh's handler for the rest would fail on it
        (
            r"/static/((?:[a-z0-9_]+/)*[a-z0-9_]+\.(?:css|js|svg|png))",
            StaticFileHandler,
            {"path": str(STATIC)},
        ),
    ]


class DashboardServer:
    """A server that listens from its making until `stop`; made on the thread of a running event loop.

    Parameters
    ----------
    team
        What it shows; it is the caller's to close.
    sign_in
        Who asks.
    settings
        Where it listens.
    further
        More patterns, such as those of the pages of a sign-in.
    forms_to
        Another origin that forms may lead to: the one where people sign out; empty: none.
    api
        Tokens and limits of the API; None: those of the team, with the usual limits.

    Raises
    ------
    BackendError
        When it cannot listen there.
    """

    def __init__(
        self,
        team: Team,
        sign_in: SignIn,
        settings: ServeSettings,
        further: Sequence[Pattern] = (),
        *,
        forms_to: str = "",
        api: Api | None = None,
    ) -> None:
        self.team, self.settings, self.forms_to = team, settings, forms_to
        self.door = Door(sign_in)
        self.metrics = Metrics(team, self.door.open, self._n_document)
        self._id = uuid.uuid4().hex
        self._server = _listening(self, sign_in, [*patterns(team, sign_in, api), *further])
        self.door.hosts = settings.hosts(self.port)
        self._checks = PeriodicCallback(self.door.end_of_signed_out, CHECK_S * 1000)
        self._server.start()
        self._checks.start()

    @property
    def port(self) -> int:
        """The port it listens on; 0 for a socket."""
        return self._server.port or 0

    @property
    def url(self) -> str:
        """The address of its first page."""
        return self.settings.first_page(self.port)

    @property
    def own(self) -> OwnServer | None:
        """The server as its account's programs find it; None: people sign in, or it listens on a socket."""
        way = self.door.sign_in
        return OwnServer(self.url, way.secret) if isinstance(way, SecretSignIn) else None

    def _n_document(self) -> int:
        return sum(1 for _ in self._server._tornado.applications[LIVE].sessions)  # noqa: SLF001 - it has no count

    async def stop(self) -> None:
        """Accept nothing more, let what runs end within seconds, and end the rest."""
        from panel.io.state import state  # noqa: PLC0415 - seconds to import

        self._checks.stop()
        self.metrics.close()
        server = self._server
        server._http.stop()  # noqa: SLF001 - stop() would also end documents, whose pages are still served
        for _, each in self.door.open.all():
            each.end()
        try:
            await asyncio.wait_for(server._http.close_all_connections(), END_S)  # noqa: SLF001
        except TimeoutError:
            logger.warning("requests that still ran were ended")
        for context in server._tornado.applications.values():  # noqa: SLF001
            for session in tuple(context.sessions):
                session.request_expiration()
        await server._tornado._cleanup_sessions()  # noqa: SLF001 - Bokeh leaves documents to the end
        server.stop()
        state._servers.pop(self._id, None)  # noqa: SLF001 - Panel's own list, which it never clears


def _listening(dashboard: DashboardServer, sign_in: SignIn, shown: Sequence[Pattern]) -> Any:  # noqa: ANN401 - panel has no types
    from panel.io.server import get_server  # noqa: PLC0415 - seconds to import

    from dlrover_nb.dashboard.handlers.documents import DocumentDoor  # noqa: PLC0415 - it imports Bokeh

    settings, team = dashboard.settings, dashboard.team
    try:
        return get_server(
            {LIVE: _document_maker(team, sign_in)},
            server_id=dashboard._id,  # noqa: SLF001
            io_loop=IOLoop.current(),
            **_place(settings),
            prefix=settings.prefix,
            use_index=False,
            extra_patterns=[
                *shown,
                *_own_patterns(team, settings),
                _metrics_pattern(dashboard, sign_in),
            ],
            auth_provider=DocumentDoor(dashboard.door, settings.prefix),
            # The token of a document stands in its page: no cookie and no header belongs there.
            include_cookies=[],
            include_headers=[],
            sign_sessions=True,
            secret_key=secrets.token_bytes(32),
            keep_alive_milliseconds=int(PING_S * 1000),
            unused_session_lifetime_milliseconds=KEPT_S * 1000,
            websocket_max_message_size=MAX_MESSAGE,
            websocket_origin=["*"],  # `DocumentDoor` checks it, before Bokeh would
            http_server_kwargs={
                "max_body_size": MAX_BODY,
                "max_buffer_size": 2 * MIB,
                "max_header_size": MAX_HEADERS,
                "body_timeout": BODY_S,
                "idle_connection_timeout": IDLE_S,
            },
            transforms=[strict_headers(settings.prefix, dashboard.forms_to)],
            is_https=settings.is_https,
            default_handler_class=NotHere,
            log_function=dashboard.metrics.note,
            door=dashboard.door,
            root=settings.prefix,
        )
    except OSError as error:
        raise BackendError(_why_not_listening(error, settings)) from error


def _metrics_pattern(dashboard: DashboardServer, sign_in: SignIn) -> Pattern:
    own = {"metrics": dashboard.metrics, "token": read_token(dashboard.settings.metrics_token_file)}
    return r"/metrics", MetricsHandler, {"team": dashboard.team, "sign_in": sign_in, **own}


def _place(settings: ServeSettings) -> dict[str, object]:
    if settings.unix_socket:
        return {"unix_socket": settings.unix_socket}
    return {"address": settings.address, "port": settings.port}


def _document_maker(team: Team, sign_in: SignIn) -> Any:  # noqa: ANN401 - panel has no types
    """Return the application of Panel that makes the live page of one job."""
    from panel.io.application import build_applications  # noqa: PLC0415 - seconds to import

    from dlrover_nb.dashboard.handlers.documents import PersonOfDocument  # noqa: PLC0415 - it imports Bokeh
    from dlrover_nb.dashboard.handlers.job_document import live_app  # noqa: PLC0415 - it imports Panel's widgets

    application = build_applications({LIVE: live_app(team, sign_in)}, title="Live - dlrover-nb")[LIVE]
    application.add(PersonOfDocument())
    return application


def _why_not_listening(error: OSError, settings: ServeSettings) -> str:
    where = settings.unix_socket or f"{settings.address}:{settings.port}"
    if error.errno == errno.EADDRINUSE and not settings.unix_socket:
        return f"port {settings.port} is in use; end what uses it, or add --port 0 for one that is free"
    if error.errno == errno.EACCES:
        return f"may not listen on {where}; use a port from 1024 on, or a socket in a folder of your own"
    return f"cannot listen on {where}: {error.strerror or error}; name another address"


async def serve(
    server_of: Callable[[], DashboardServer], ready: Callable[[DashboardServer], None], over: asyncio.Event
) -> None:
    """Run a server until an event; `ready` is called once it listens."""
    pool = ThreadPoolExecutor(N_THREAD, thread_name_prefix="dlrover-page")
    asyncio.get_running_loop().set_default_executor(pool)
    server = server_of()
    try:
        ready(server)
        await over.wait()
    finally:
        await server.stop()
