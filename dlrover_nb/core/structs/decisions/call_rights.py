"""The three rights to a job's master (view, steer, end it), and what carries each through an API server.

On Kubernetes the HTTP method is the right. The API server maps the method of a request that it passes on to a
pod to a verb on ``pods/proxy``, and RBAC decides on verbs: so roles tell viewers, operators and users apart,
and the API server enforces it, whatever a client is made to send. Rejected: three Secrets to a job (RBAC
cannot match their names by a pattern, so a shipped role reads all three or none); TokenReview in the master
(the user's own credentials would have to reach a pod, over plain HTTP, and each master would need a right of
the cluster).

Tokens bound those who reach the pod's port past the API server. Each right has one, derived from the job's;
a stronger token, or method, includes the weaker rights. A client sends the weakest that its call needs.
"""

from __future__ import annotations

import hmac
from enum import IntEnum


class CallRight(IntEnum):
    """A right to a job's master; each includes those before it."""

    VIEW = 1
    STEER = 2
    END = 3


METHODS = {"GET": CallRight.VIEW, "POST": CallRight.STEER, "DELETE": CallRight.END}
METHOD_OF = {right: method for method, right in METHODS.items()}
VERBS = {"GET": "get", "POST": "create", "DELETE": "delete"}  # on `pods/proxy`, as the API server maps them
BY_TOKEN_ALONE = {"POST": CallRight.END}  # where no API server stands between


def access_token(access: str, right: CallRight) -> str:
    """Return the token of a right, which says nothing about those of the other rights.

    Parameters
    ----------
    access
        The job's own token, from which all are derived.
    """
    return hmac.new(access.encode(), right.name.lower().encode(), "sha256").hexdigest()
