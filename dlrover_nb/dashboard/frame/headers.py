"""The headers that no answer lacks, and errors in the look of the pages.

Both are set by a transform of Tornado's, which sees each answer before it leaves: also those of Bokeh's own
handlers, which are not ours to subclass, and of addresses without a handler.

Our pages run no script but files of this server. Style attributes are allowed: the views of notebooks have
them, and nothing that a cluster or a user names gets into one. Bokeh's page is another matter: it compiles
code of its models with `Function` or from a blob, and starts from a script in the page; so that page alone
may. What it shows is escaped as everywhere.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from tornado.web import OutputTransform

from dlrover_nb.dashboard.frame.log import ID
from dlrover_nb.dashboard.frame.page_frame import failure_html

if TYPE_CHECKING:
    from tornado.httputil import HTTPHeaders, HTTPServerRequest

_COMMON = (
    "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'self'; frame-ancestors 'self'; "
    "img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
)
PAGE_POLICY = _COMMON + "script-src 'self'"
LIVE_POLICY = _COMMON + "script-src 'self' blob: 'unsafe-inline' 'unsafe-eval'"

SAFE = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
LIVE = "/live"  # where the one Panel document is
_STATIC = ("/static/", f"{LIVE}/static/")


class StrictHeaders(OutputTransform):
    """Sets the headers of every answer; `root` is the path under which a proxy serves the dashboard."""

    root = ""
    forms_to = ""  # another origin that our forms may lead to: the provider, when a person signs out

    def __init__(self, request: HTTPServerRequest) -> None:
        super().__init__(request)
        self._path = request.path.removeprefix(self.root)
        self._id = secrets.token_hex(8)
        setattr(request, ID, self._id)  # for the log

    def transform_first_chunk(
        self,
        status_code: int,
        headers: HTTPHeaders,
        chunk: bytes,
        finishing: bool,  # noqa: FBT001 - of Tornado
    ) -> tuple[int, HTTPHeaders, bytes]:
        """Add what the handler has not set, and draw a foreign handler's error as our own."""
        headers["X-Request-Id"] = self._id
        if status_code == 101:
            return status_code, headers, chunk
        headers.pop("Server", None)  # no client needs the versions of our parts
        for name, value in SAFE.items():
            headers[name] = value
        for name in [each for each in headers if each.lower().startswith("access-control-")]:
            del headers[name]  # Bokeh's scripts for pages of other hosts: there are none
        policy = LIVE_POLICY if self._path == LIVE else PAGE_POLICY
        forms = f"form-action 'self' {self.forms_to}".rstrip()
        headers["Content-Security-Policy"] = policy.replace("form-action 'self'", forms)
        if not self._path.startswith(_STATIC) or status_code >= 400:
            headers["Cache-Control"] = "no-store"
        if finishing and status_code >= 400 and chunk.startswith(b"<html><title>"):  # as Tornado writes them
            chunk = failure_html(status_code, "", root=self.root).encode()
            headers["Content-Length"] = str(len(chunk))
        return status_code, headers, chunk


def strict_headers(root: str, forms_to: str = "") -> type[StrictHeaders]:
    """Return the transform of a server below a path, whose forms may lead to another origin."""
    return type("StrictHeadersBelow", (StrictHeaders,), {"root": root, "forms_to": forms_to})
