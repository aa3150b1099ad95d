"""The way to the job's master: JSON over HTTP, repeated until it is answered.

The master may be away for a while, as when its pod is replaced. Nothing can be trained without it that
counts, so a call waits; every call may be repeated.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

logger = logging.getLogger(__name__)

PATH = "/v1/service"
LIMIT_S = 60.0  # for one answer; the master itself gives up after 30 s
FIRST_WAIT_S, LONGEST_WAIT_S = 0.05, 2.0  # between two tries
WARN_EVERY_S = 60.0


class ServiceError(RuntimeError):
    """The job's master refuses a request, and says why."""


class UnreachableError(ServiceError):
    """The job's master does not answer."""


class Link:
    """Sends requests of this process, each over a connection of its own: a master may serve many processes.

    Parameters
    ----------
    node, token, file
        Name of the node, the job's token for programs, and the file that holds the master's address.
    """

    def __init__(self, node: str, token: str, file: str) -> None:
        self.node = node
        self._token, self._file = token, file

    def call(self, kind: str, fields: Mapping[str, Any], *, tries: int = 0) -> tuple[str, dict[str, Any]]:
        """Return the name of an answer and its fields.

        Parameters
        ----------
        tries
            How often it is tried; 0: until it is answered.

        Raises
        ------
        ServiceError
            When the request is refused.
        UnreachableError
            When no try was answered.
        """
        body = json.dumps([kind, fields]).encode()
        wait_s, n_try, warned_s = FIRST_WAIT_S, 0, time.monotonic()
        while True:
            try:
                status, text = self._post(body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                status, text = 503, f"{type(error).__name__}: {error}".encode()
            if status == 200:
                name, answer = json.loads(text)
                if name == "refused":
                    raise ServiceError(str(answer["why"]))
                return str(name), answer
            words = text.decode(errors="replace")
            if status not in {500, 502, 503, 504}:
                raise ServiceError(f"the job's master answered {status}: {words}")
            n_try += 1
            if n_try == tries:
                raise UnreachableError(f"the job's master does not answer: {words}")
            if time.monotonic() > warned_s + WARN_EVERY_S:
                warned_s = time.monotonic()
                logger.warning("waiting for the job's master: %s", words)
            time.sleep(wait_s)
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    def _post(self, body: bytes) -> tuple[int, bytes]:
        with open(self._file) as file:
            url = urlsplit(file.read().strip())
        # proxies of the machine are for hosts outside of the cluster, and are not used by this
        connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=LIMIT_S)
        headers = {"Content-Type": "application/json", "X-Dlrover-Report": self._token, "Connection": "close"}
        try:
            connection.request("POST", url.path.rpartition("/v1/")[0] + PATH, body, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def link_of(env: Mapping[str, str] = os.environ) -> Link | None:
    """Return the link to the master of the job of this process; None outside of a job."""
    node, token = env.get("DLROVER_NB_NODE", ""), env.get("DLROVER_NB_REPORT_TOKEN", "")
    file = env.get("DLROVER_NB_REPORT_FILE", "")
    return Link(node, token, file) if node and token and file else None
