"""The rules of the standard ``restricted`` of Kubernetes' PodSecurity, for a pod's specification.

Of https://kubernetes.io/docs/concepts/security/pod-security-standards/. A server of the tests is of a release that
does not enforce them yet.
"""

from __future__ import annotations

from typing import Any

VOLUMES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"
}  # fmt: skip


def check_restricted(pod: dict[str, Any]) -> None:
    """Fail at the first field of a pod that the standard does not allow."""
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert not {"sysctls", "seLinuxOptions", "appArmorProfile", "windowsOptions"} & context.keys()
    for container in (*pod["containers"], *pod.get("initContainers", ())):
        own = container["securityContext"]
        assert own["allowPrivilegeEscalation"] is False
        assert own["capabilities"] == {"drop": ["ALL"]}
        assert not own.get("privileged")
        assert not {"procMount", "seLinuxOptions", "appArmorProfile", "windowsOptions"} & own.keys()
        assert own.get("runAsUser", 1) > 0
        assert own.get("runAsNonRoot", True)
        assert all("hostPort" not in port for port in container.get("ports", ()))
