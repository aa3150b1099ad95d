"""What the server logs: one line per event on the standard error, as text or as JSON.

A request has an id, which its answer carries too, so that a person can name it. Of an address only the path
is logged: queries hold codes of sign-ins and names of jobs. Bodies, cookies and headers are never logged, and
credentials of known forms are taken out of every message.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.redaction import redact

if TYPE_CHECKING:
    from typing import TextIO

    from tornado.web import RequestHandler

# Tornado names a refused request by its whole address, and one that failed by its own `repr`.
_QUERY = re.compile(r"((?:\b[A-Z]{3,7} /|\buri='/)[^\s?']*)\?[^\s']*")
FORMATS = ("text", "json")
FIELDS = ("request", "person", "method", "path", "status", "ms", "address", "person_tried")
ID = "dlrover_id"  # of a request, on Tornado's object
_QUIET = {"/healthz", "/readyz", "/metrics"}  # asked every few seconds
access = logging.getLogger("dlrover_nb.dashboard.access")


class JsonLines(logging.Formatter):
    """One event as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        event = {
            "at": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **{name: vars(record)[name] for name in FIELDS if name in vars(record)},
        }
        if record.exc_info:
            event["error"] = redact(self.formatException(record.exc_info))
        return json.dumps(event, ensure_ascii=False, default=str)


class TextLines(logging.Formatter):
    """One event as one line to read."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; a line break that a stranger may have chosen begins no new event."""
        text = _message(record).replace("\r", "").replace("\n", " | ")
        values = " ".join(f"{name}={vars(record)[name]!r}" for name in FIELDS if name in vars(record))
        line = f"{_time(record)} {record.levelname:7} {text} {values}".rstrip()
        return f"{line}\n{redact(self.formatException(record.exc_info))}" if record.exc_info else line


def _message(record: logging.LogRecord) -> str:
    return redact(_QUERY.sub(r"\1", record.getMessage()))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def set_up(form: str, stream: TextIO | None = None, *, level: int = logging.INFO) -> logging.Handler:
    """Log to a stream from now on, this package from `level` on; return the handler that does so."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(logging.WARNING)
    logging.getLogger("dlrover_nb").setLevel(level)
    # Bokeh warns that any origin may open a websocket; `documents.DocumentDoor` has checked it by then.
    logging.getLogger("bokeh.server.util").setLevel(logging.ERROR)
    return handler


def log_request(handler: RequestHandler) -> None:
    """Log a request that was answered; Tornado calls it."""
    request, status = handler.request, int(handler.get_status())
    level = logging.ERROR if status >= 500 else logging.WARNING if status in {401, 403, 429} else logging.INFO
    if request.path.rpartition("/")[2] in {each[1:] for each in _QUIET} and status < 400:
        level = logging.DEBUG
    person = getattr(handler, "person", None)
    access.log(
        level,
        "request",
        extra={
            "request": getattr(request, ID, ""),
            "person": person.name if person is not None else "",
            "method": request.method,
            "path": request.path,
            "status": status,
            "ms": round(request.request_time() * 1000, 1),
            "address": request.remote_ip,
        },
    )
