"""A small HTTP server of a master, beside its loop.

It is the standard library's. Waitress, which serves masters in pods, was rejected as a dependency of every
installation: here one user's few processes call, or the programs of one job.

One port takes plain and encrypted connections: programs that report by Kubeflow Trainer's protocol expect
HTTPS. A port for each was rejected: reports carry one address.

Any user of the machine may connect. So few connections wait for their request at a time, each with a thread:
a further one ends the oldest of them, as clients send theirs at once. To refuse the newest was rejected: who
opens many would keep all others out.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from socketserver import TCPServer, ThreadingMixIn
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

if TYPE_CHECKING:
    import ssl

    from dlrover_nb.core.driver.calls.service import MasterService

logger = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
REQUEST_LIMIT_S = 30.0  # for a client to send its request
CLOSE_LIMIT_S = 1.0  # and to close an encrypted connection, once it has the answer
MOST_WAITING = 64  # connections that have not sent the head of a request
LOG_EVERY_S = 60.0  # at most, of connections that ended
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
        self._lock = threading.Lock()
        self._waiting: dict[object, socket.socket] = {}  # by address of the client, the oldest first
        self._n_ended, self._logged_s = 0, float("-inf")
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), _Handler)
        self.set_app(application)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the standard library has it
        """Serve a connection in a thread; where too many wait for their requests, end the oldest."""
        with self._lock:
            while len(self._waiting) >= MOST_WAITING:
                _end(self._waiting.pop(next(iter(self._waiting))))
            self._waiting[client_address] = request
        super().process_request(request, client_address)

    def has_asked(self, client_address: object) -> None:
        """Note that a connection waits no more: its request has come, or it has ended."""
        with self._lock:
            self._waiting.pop(client_address, None)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as the standard library has it
        """Serve one connection, encrypted where it asks for that."""
        request.settimeout(REQUEST_LIMIT_S)
        try:
            if self.encryption is None or request.recv(1, socket.MSG_PEEK) != _HANDSHAKE:
                super().finish_request(request, client_address)
                return
            with self.encryption.wrap_socket(
                request, server_side=True, do_handshake_on_connect=False
            ) as sealed:
                with self._lock:
                    if client_address not in self._waiting:  # ended meanwhile
                        return
                    self._waiting[client_address] = sealed
                sealed.do_handshake()
                super().finish_request(sealed, client_address)
                sealed.settimeout(CLOSE_LIMIT_S)
                sealed.recv(1 << 16)  # a body that was refused unread: to close over it would lose the answer
        except OSError as error:  # also what is wrong in a handshake
            self._log_end(client_address, error)
        finally:
            self.has_asked(client_address)

    def _log_end(self, client_address: Any, error: OSError) -> None:  # noqa: ANN401 - as above
        """Log that a connection ended, with the number of those since the last line."""
        with self._lock:
            self._n_ended += 1
            if time.monotonic() < self._logged_s + LOG_EVERY_S:
                return
            n, self._n_ended, self._logged_s = self._n_ended, 0, time.monotonic()
        logger.info(
            "%d connections ended without an answer, the last from %s: %s", n, client_address[0], error
        )

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


def _end(connection: socket.socket) -> None:
    """End a connection that another thread reads: it reads the end."""
    with contextlib.suppress(OSError):
        socket.socket.shutdown(connection, socket.SHUT_RDWR)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_LIMIT_S

    def parse_request(self) -> bool:
        """Read the head of a request; the connection waits no more then."""
        is_read = super().parse_request()
        assert isinstance(self.server, ThreadedServer)
        self.server.has_asked(self.client_address)
        return is_read

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 - as the standard library has it
        """Log nothing: views call each second."""
