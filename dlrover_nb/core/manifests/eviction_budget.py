"""The PodDisruptionBudget of a job: of its master and its parameter servers, one at a time may be evicted.

What a parameter server holds moves to another within its grace period. For several together the time may be
too short, and without a master nothing moves: that is a start from the last checkpoint. So a drain that wants
several has to wait until the first has moved. Workers are left out: any number of them may go.

It says how many must stay, as a number. ``maxUnavailable`` would follow the plan by itself, but Kubernetes
counts it only for pods of controllers with a scale, such as a ReplicaSet, and lets no others be evicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
    from dlrover_nb.core.manifests.kinds import Doc, Kind


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
