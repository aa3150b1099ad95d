"""Where pods of a role run among those of other roles: required affinity and anti-affinity by machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.manifests.pod_parts import HOSTNAME

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dlrover_nb.core.structs.job.external import ExternalRole

_RULE = "requiredDuringSchedulingIgnoredDuringExecution"


def beside_roles(
    affinity: Mapping[str, Any], own: ExternalRole, labels: Mapping[str, str], role_label: str
) -> dict[str, Any]:
    """Return the affinity of a pod's spec, and where its role says that it runs; a pod that cannot waits.

    Parameters
    ----------
    affinity
        The affinity so far.
    own
        The program of the pod's role.
    labels, role_label
        Labels of all pods of the job, and the name of the one with a pod's role.
    """

    def of_role(role: str) -> dict[str, Any]:
        there = {**labels, role_label: str(role)}
        return {"labelSelector": {"matchLabels": there}, "topologyKey": HOSTNAME}

    roles_of = {"podAffinity": own.together_with, "podAntiAffinity": own.apart_from}
    more = {
        kind: affinity.get(kind, {}) | {_RULE: [of_role(name) for name in names]}
        for kind, names in roles_of.items()
        if names
    }
    return {**affinity, **more}
