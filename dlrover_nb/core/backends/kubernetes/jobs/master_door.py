"""Sends calls to the pod of a job's master, each with the weakest method and token that its right needs.

So a client that only looks sends GETs with a token that only shows: that is all its role must allow, and all
that can be read on the plain HTTP between the API server and the pod.

A master of an earlier release knows only POSTs with the job's own token, and refuses all else before it does
anything. It gets that then, from a client that may read the token. Nothing is won by pretending to be such a
master: a client that can answer in its pod's place could read the Secret in that pod too.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import PodAnswered
from dlrover_nb.core.client.link.calls import CALLS, right_of
from dlrover_nb.core.driver.calls.service import ACCESS_HEADER, CALL_PATH, call_url
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.manifests.objects import HTTP_PORT
from dlrover_nb.core.structs.decisions.call_rights import METHOD_OF, CallRight, access_token

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.client.link.calls import Call

MOST_URL_BYTES = 6 << 10  # common proxies take lines of 8 KiB, and the path before it is ours too
_EARLIER = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_IMPLEMENTED,
}
_BINARY = ("Content-Type", "application/octet-stream")


class MasterDoor:
    """The way to the master of one job; thread-safe.

    Parameters
    ----------
    access
        The job's own token; empty: this client may not read it.
    view
        The token that shows the job, which is all that a client without the other has.
    """

    def __init__(self, access: str, view: str = "") -> None:
        self._access, self._view = access, view
        self._is_earlier = False

    def send(self, api: Api, pod: str, call: Call, limit_s: float) -> bytes:
        """Send a call and return the encoded answer.

        Raises
        ------
        Forbidden
            When the user's role does not allow calls of this right.
        PodAnswered
            When the master refuses it.
        NotThere, Unreachable
            When nothing arrived there.
        """
        if not self._is_earlier:
            try:
                return self._send(api, pod, call, limit_s)
            except PodAnswered as error:
                if not self._access or error.status not in _EARLIER:
                    raise
        answer = self._post(api, pod, CALLS.pack(call), self._access, limit_s)
        self._is_earlier = True
        return answer

    def _send(self, api: Api, pod: str, call: Call, limit_s: float) -> bytes:
        right, packed = right_of(call), CALLS.pack(call)
        token = access_token(self._access, right) if self._access else self._view
        url, method = call_url(packed), METHOD_OF[right]
        if right is CallRight.VIEW and len(url) > MOST_URL_BYTES:
            method = METHOD_OF[CallRight.STEER]  # it has a body, and includes the right to view
        if method == "POST":
            return self._post(api, pod, packed, token, limit_s)
        if len(url) > MOST_URL_BYTES:
            raise InvalidValueError(
                f"the reason must fit into {MOST_URL_BYTES >> 11} KiB with the rest of the call; shorten it"
            )
        return api.proxy(pod, HTTP_PORT, url, None, {ACCESS_HEADER: token}, limit_s, method=method)

    @staticmethod
    def _post(api: Api, pod: str, packed: bytes, token: str, limit_s: float) -> bytes:
        headers = dict([(ACCESS_HEADER, token), _BINARY])
        return api.proxy(pod, HTTP_PORT, CALL_PATH, packed, headers, limit_s)
