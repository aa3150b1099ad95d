"""A small HTTP server of a master, beside its loop.

It is the standard library's. Waitress, which serves masters in pods, was rejected as a dependency of every
installation: here one user's few processes call, or the programs of one job.

One port takes plain and encrypted connections: programs that report by Kubeflow Trainer's protocol expect
HTTPS. A port for each was rejected: reports carry one address.
"""

from __future__ import annotations

import logging
import socket
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    import ssl

    from dlrover_nb.core.driver.service import MasterService

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
REQUEST_LIMIT_S = 30.0  # for a client to send its request
CLOSE_LIMIT_S = 1.0  # and to close an encrypted connection, once it has the answer
_HANDSHAKE = b"\x16"  # first byte of a TLS connection, and of no HTTP request


class ThreadedServer(ThreadingMixIn, WSGIServer):
    """Serves a WSGI application on a free port of one address, each request in a thread.

    Parameters
    ----------
    application
        Answers the requests.
    host
        The address, by default loopback.
    port
        The port; 0: a free one.

    Attributes
    ----------
    encryption
        With which connections are served that begin with a TLS handshake; None: those are refused.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, application: MasterService, host: str = LOOPBACK, port: int = 0) -> None:
        self.encryption: ssl.SSLContext | None = None
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.set_app(application)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the standard library has it
        """Serve one connection, encrypted where it asks for that."""
        request.settimeout(REQUEST_LIMIT_S)
        try:
            if self.encryption is None or request.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
                super().finish_request(request, client_address)
                return
            with self.encryption.wrap_socket(request, server_side=True) as sealed:
                super().finish_request(sealed, client_address)
                sealed.settimeout(CLOSE_LIMIT_S)
                sealed.recv(1 << 16)  # a body that was refused unread: to close over it would lose the answer
        except OSError as error:  # also what is wrong in a handshake
            logger.info("a connection from %s ended: %s", client_address[0], error)

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
