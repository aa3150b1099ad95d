"""A small HTTP server of a master, beside its loop.

It is the standard library's. Waitress, which serves masters in pods, was rejected as a dependency of every
installation: here one user's few processes call, or the programs of one job.
"""

from __future__ import annotations

import socket
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    from dlrover_nb.core.driver.service import MasterService

LOOPBACK = "127.0.0.1"
REQUEST_LIMIT_S = 30.0  # for a client to send its request


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """Serves a WSGI application on a free port of one address, each request in a thread.

    Parameters
    ----------
    application
        Answers the requests.
    host
        The address, by default loopback.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, application: MasterService, host: str = LOOPBACK) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, 0), _Handler)
        self.set_app(application)

    @property
    def url(self) -> str:
        """Where it answers, without a path."""
        return f"http://{bracketed(self.server_name)}:{self.server_port}"

    def server_bind(self) -> None:
        """Bind without looking up this host's name, which may wait for a name server."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]  # never bytes
        self.setup_environ()


def bracketed(host: str) -> str:
    """Return an address as it stands before a port."""
    return f"[{host}]" if ":" in host else host


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_LIMIT_S

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the standard library has it
        """Log nothing: views call each second."""
