"""The receiver of Kubeflow Trainer's protocol of training progress (`core.client.trainer.status_format`).

As Kubeflow's the connection is HTTPS, with a certificate of the job's own (`certificate`). Plain HTTP, which
all other reports of programs to their master use, is answered too.
"""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs

from dlrover_nb.core.client.trainer.status_format import read_status, write_status
from dlrover_nb.core.codec import to_json
from dlrover_nb.core.errors import WireError
from dlrover_nb.core.structs.training.reported import TrainerReport

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

MOST_BYTES = 1 << 16  # of a request, as Kubeflow's server has it
NODE_FIELD = "node"  # of the address: whose program it is


class Reply(NamedTuple):
    """The answer to a request: a status line, and JSON."""

    status: str
    body: bytes


def take_status(environ: Mapping[str, Any], token: bytes, hear: Callable[[TrainerReport], None]) -> Reply:
    """Return the answer to a program that sends its status, after passing it to `hear`."""
    given = str(environ.get("HTTP_AUTHORIZATION", "")).encode()
    if not hmac.compare_digest(given, b"Bearer " + token):
        return _failure("403 Forbidden", "Forbidden", "this needs the token of the job's programs as bearer")
    if environ["REQUEST_METHOD"] != "POST":
        return _failure("404 Not Found", "NotFound", "a status is sent by POST")
    length = str(environ.get("CONTENT_LENGTH") or "")
    if not length.isdecimal() or int(length) > MOST_BYTES:
        words = f"a status is JSON of at most {MOST_BYTES >> 10} KiB, with its length in the request"
        return _failure("413 Request Entity Too Large", "RequestEntityTooLarge", words)
    try:
        status = read_status(environ["wsgi.input"].read(int(length)))
    except WireError as error:
        return _failure("422 Unprocessable Entity", "Invalid", str(error))
    if status is not None:
        node = parse_qs(str(environ.get("QUERY_STRING", ""))).get(NODE_FIELD, [""])[0]
        hear(TrainerReport(node, status))
    return Reply("200 OK", write_status(status))


def _failure(status: str, reason: str, message: str) -> Reply:
    """Return a refusal in the form of Kubernetes."""
    code = int(status.split(" ", 1)[0])
    body = {"metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code}
    return Reply(status, to_json(body))
