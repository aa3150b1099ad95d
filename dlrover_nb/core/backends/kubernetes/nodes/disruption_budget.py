"""Keeps the disruption budget of a run in step with its parameter servers.

More parameter servers count at once. Fewer count after a while: one that was lost is missing until its
successor is made, and just then no second one may go. What cannot be placed for long lowers the budget too,
so that a full cluster can be drained.

One that is being deleted counts beside its successor until it has ended: while its parameters move, no other
may go. Then the next one may at once.

A budget is no condition of a job: without the right to it, on a server that has none, or when a user
deletes it to get a machine free, the job goes on without, and says so once. A right that was there before is
waited for.

Of a job's master and its parameter servers, one at a time may be evicted. What a parameter server holds moves
to another within its grace period. For several together the time may be too short, and without a master
nothing moves: that is a start from the last checkpoint. So a drain that wants several has to wait until the
first has moved. Workers are left out: any number of them may go.

The budget says how many must stay, as a number. ``maxUnavailable`` would follow the plan by itself, but
Kubernetes counts it only for pods of controllers with a scale, such as a ReplicaSet, and lets no others be
evicted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.client.api_errors import (
    ApiError,
    Conflict,
    Forbidden,
    Unauthorized,
    Unreachable,
)
from dlrover_nb.core.manifests.kinds import BUDGET, BUDGET_1_20
from dlrover_nb.core.manifests.objects import with_owner
from dlrover_nb.core.manifests.pod_parts import (
    JOB_LABEL,
    MASTER_ROLE,
    ROLE_LABEL,
    RUN_LABEL,
    budget_name,
    labels,
)
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.backends.kubernetes.client.api import Api
    from dlrover_nb.core.manifests.kinds import Doc, Kind
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

logger = logging.getLogger(__name__)

LOWER_AFTER_S = 30.0  # a lost parameter server is noticed and made again within seconds
_ENDED = {"Succeeded", "Failed"}


def budget(job: str, run: str, n_ps: int, kind: Kind) -> Doc:
    """Return the budget of a run with so many parameter servers; the caller adds the owner.

    Parameters
    ----------
    n_ps
        Of its parameter servers and its master, all but one must stay. 0: all may go, as after its end.
    kind
        The one that the server offers.
    """
    roles = {"key": ROLE_LABEL, "operator": "In", "values": [MASTER_ROLE, str(Role.PS)]}
    chosen = {"matchLabels": {JOB_LABEL: job, RUN_LABEL: run}, "matchExpressions": [roles]}
    return {
        "apiVersion": kind.api_version,
        "kind": kind.name,
        "metadata": {"name": budget_name(job), "labels": labels(job, run)},
        "spec": {"minAvailable": n_ps, "selector": chosen},
    }


class DisruptionBudget:
    """The budget of one run; called by one thread.

    Parameters
    ----------
    api
        In the job's namespace.
    job
        Of which.
    owner
        The object that the budget goes with.
    """

    def __init__(self, api: Api, job: PodJob, owner: Doc) -> None:
        self._api, self._name, self._run, self._owner = api, job.spec.name, job.run, owner
        self._n_written: int | None = None  # None: nothing yet
        self._n_staying = 0  # that are not being deleted
        self._fewer_since_s: float | None = None
        self._is_off = False

    def follow(self, pods: Iterable[Doc], at_s: float) -> None:
        """Bring the budget to the parameter servers that there are."""
        present = _parameter_servers(pods)
        n_leaving = sum("deletionTimestamp" in pod["metadata"] for pod in present)
        self._follow_staying(len(present) - n_leaving, at_s)
        n_ps = self._n_staying + n_leaving
        if not self._is_off and n_ps != (self._n_written or 0):
            self._tell(n_ps)

    def end(self) -> None:
        """Let all pods go: the run has ended."""
        if not self._is_off and self._n_written:
            self._tell(0)

    def _follow_staying(self, n_ps: int, at_s: float) -> None:
        if n_ps >= self._n_staying:
            self._n_staying, self._fewer_since_s = n_ps, None
        elif self._fewer_since_s is None:
            self._fewer_since_s = at_s
        elif at_s >= self._fewer_since_s + LOWER_AFTER_S:
            self._n_staying, self._fewer_since_s = n_ps, None

    def _tell(self, n_ps: int) -> None:
        try:
            self._write(n_ps)
        except (Unreachable, Unauthorized) as error:
            logger.debug("job %s: its disruption budget is written later: %s", self._name, error)
        except ApiError as error:
            if isinstance(error, Forbidden) and self._n_written is not None:
                return  # the right was there before, and may come back
            self._is_off = True
            logger.info("job %s: a drain may evict several of its pods at once: %s", self._name, error)
        else:
            self._n_written = n_ps

    def _write(self, n_ps: int) -> None:
        kind = BUDGET if self._api.has(BUDGET) else BUDGET_1_20
        document = with_owner(budget(self._name, self._run, n_ps, kind), self._owner)
        if self._n_written is None:
            try:
                self._api.create(kind, document)
            except Conflict:  # of an earlier master, or of an earlier run that is being deleted
                self._api.patch(kind, document["metadata"]["name"], document)
        else:
            self._api.patch(kind, document["metadata"]["name"], {"spec": {"minAvailable": n_ps}})


def _parameter_servers(pods: Iterable[Doc]) -> list[Doc]:
    """Return the pods of parameter servers that have not ended."""
    return [
        pod
        for pod in pods
        if pod["metadata"].get("labels", {}).get(ROLE_LABEL) == Role.PS
        and pod.get("status", {}).get("phase") not in _ENDED
    ]
