"""Restores the Secrets of a running job when a user deletes them: new pods would wait for them forever.

The master keeps what it saw of them last. It looks before pods are made, and once a minute for the sake of
users, who need the keys to steer. A Secret is applied on the server's side, which creates it under its name:
that right can be bound to the name, as the usual right to create cannot. A watch was rejected: it needs the
right to list Secrets, with which anyone who has the master's account reads all of the namespace.

A master without these rights (of an earlier release, or with an account of the user's own) says so once, and
the job goes on as without it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    NotThere,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.manifests.kinds import SECRET
from dlrover_nb.core.manifests.pod_parts import code_name, has_code, secret_name

if TYPE_CHECKING:
    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

LOOK_EVERY_S = 60.0
SOON_S = 5.0  # between looks while pods are made
_COPIED = ("name", "namespace", "labels", "annotations", "ownerReferences")


class OwnSecrets:
    """The Secrets of one run; called by one thread, once the run has nodes: before, their content changes.

    Parameters
    ----------
    api
        In the job's namespace.
    job
        The run.
    """

    def __init__(self, api: Api, job: PodJob) -> None:
        name = job.spec.name
        self._api, self._job = api, name
        self._secrets: dict[str, Doc | None] = {secret_name(name): None}
        if has_code(job):
            self._secrets[code_name(name)] = None
        self._looked_s, self._has_warned = float("-inf"), False
        self._made_pods = False  # since the last look

    def follow(self, at_s: float, *, makes_pods: bool) -> None:
        """Restore what is gone, when a look is due; `makes_pods`: pods are about to be made.

        Pods that are made too soon after a look get the next one: until then they may wait for what is gone.
        """
        self._made_pods |= makes_pods
        if at_s < self._looked_s + (SOON_S if self._made_pods else LOOK_EVERY_S):
            return
        self._looked_s, self._made_pods = at_s, False
        try:
            for name in self._secrets:
                self._look(name)
        except (Unreachable, Unauthorized) as error:
            logger.debug("job %s: its Secrets are looked at later: %s", self._job, error)
        except ApiError as error:
            if not self._has_warned:
                logger.warning(
                    "job %s: its Secrets are not restored when they are deleted: %s", self._job, error
                )
            self._has_warned = True

    def _look(self, name: str) -> None:
        try:
            self._secrets[name] = self._api.get(SECRET, name)
        except NotThere:
            if (secret := self._secrets[name]) is None:
                raise
            self._api.apply(SECRET, name, _anew(secret))
            logger.warning("job %s: its Secret %s was deleted, and is restored", self._job, name)


def _anew(secret: Doc) -> Doc:
    """Return an object as it is to be made again, without the identity that it had."""
    head = {key: value for key, value in secret["metadata"].items() if key in _COPIED}
    fields = {key: secret[key] for key in ("apiVersion", "kind", "type", "data")}
    return {**fields, "metadata": head}
