"""A job's pod settings (`KubernetesSpec`) as fields of a pod and its container, and where roles run.

Only given settings are written: the rest is the cluster's default. Variables in pods are readable by
everybody, so those that `structs.secrets.without_secrets` left out are not here either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dlrover_nb.core.structs.job.kubernetes import DEFAULT_IMAGE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from dlrover_nb.core.structs.job.external import ExternalRole
    from dlrover_nb.core.structs.job.job import JobSpec
    from dlrover_nb.core.structs.job.kubernetes import KubernetesSpec, Volume

Group = dict[str, object]
HOSTNAME = "kubernetes.io/hostname"
_RULE = "requiredDuringSchedulingIgnoredDuringExecution"
_SOURCES = {  # field of `Volume` -> kind of a pod's volume, key of its name
    "claim": ("persistentVolumeClaim", "claimName"),
    "host_path": ("hostPath", "path"),
    "config_map": ("configMap", "name"),
    "secret": ("secret", "secretName"),
}


def image_of(job: JobSpec, chosen: str) -> str:
    """Return the image of a job's own pods: the one chosen for the export, the job's, or the default."""
    return chosen or job.kubernetes.image or DEFAULT_IMAGE


def pod_spec(job: JobSpec, main: Group, *, beside: Iterable[Group] = ()) -> Group:
    """Return the spec of a pod of `job` with one container.

    Parameters
    ----------
    main
        The container; `container_of` makes it from the job.
    beside
        Volumes besides those of the job.
    """
    kube = job.kubernetes
    volumes = [*(_volume(i, volume) for i, volume in enumerate(kube.volumes)), *beside]
    fields: Group = {
        "restartPolicy": "Never",
        "containers": [main],
        "volumes": volumes,
        "nodeSelector": dict(_pairs(kube.node_selector)),
        "tolerations": [toleration(text) for text in kube.tolerations],
        "priorityClassName": kube.priority_class,
        "imagePullSecrets": [{"name": name} for name in kube.pull_secrets],
    }
    return {key: value for key, value in fields.items() if value} | closed_pod(kube)


def pod_template(job: JobSpec, pod: Group) -> Group:
    """Return the template of a pod of `job` with this spec."""
    metadata = with_own({}, job.kubernetes)
    return {**({"metadata": metadata} if metadata else {}), "spec": pod}


def with_own(metadata: Mapping[str, Any], kube: KubernetesSpec) -> dict[str, Any]:
    """Return an object's metadata with the labels and annotations that the job says; those there win."""
    given = {"labels": dict(_pairs(kube.labels)), "annotations": dict(_pairs(kube.annotations))}
    merged = {key: own | metadata.get(key, {}) for key, own in given.items() if own}
    return {**metadata, **merged}


def ttl(kube: KubernetesSpec) -> dict[str, object]:
    """Return the field of a Job, and of kinds modelled on it, by which it goes away when it has ended."""
    return {} if kube.ttl_s is None else {"ttlSecondsAfterFinished": kube.ttl_s}


def closed_pod(kube: KubernetesSpec) -> Group:
    """Return the fields of a pod without rights, as the standard ``restricted`` of Kubernetes asks for."""
    user = kube.run_as_user
    context = {
        "runAsNonRoot": True,
        "runAsUser": user,
        "runAsGroup": user,
        "fsGroup": user,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {"automountServiceAccountToken": False, "securityContext": context}


def closed_container() -> Group:
    """Return the security context of a container without rights; see `closed_pod`."""
    return {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def container_of(job: JobSpec, fields: Group, *, mounts: Iterable[Group] = ()) -> Group:
    """Return a container with the job's settings for all containers; `env` of `fields` wins."""
    kube = job.kubernetes
    own = fields.get("env")
    named = [variable for variable in own if isinstance(variable, dict)] if isinstance(own, list) else []
    own_names = {variable["name"] for variable in named}
    env = [variable for variable in variables(kube.env) if variable["name"] not in own_names] + named
    more: Group = {
        "imagePullPolicy": kube.pull_policy,
        "env": env,
        "envFrom": [{"secretRef": {"name": name}} for name in kube.env_secrets],
        "volumeMounts": [*(_mount(i, volume) for i, volume in enumerate(kube.volumes)), *mounts],
        "securityContext": closed_container(),
    }
    return {key: value for key, value in {**fields, **more}.items() if value}


def variables(items: Iterable[str]) -> list[Group]:
    """Return ``NAME=VALUE`` texts as variables of a container; the last of equal names wins."""
    return [{"name": k, "value": v} for k, v in dict(_pairs(items)).items()]


def toleration(text: str) -> Group:
    """Return a toleration from ``KEY=VALUE:EFFECT``, ``KEY:EFFECT`` or ``KEY``."""
    taint, _, effect = text.partition(":")
    key, equals, value = taint.partition("=")
    fields = {"key": key, "operator": "Equal" if equals else "Exists", "value": value, "effect": effect}
    return {name: field for name, field in fields.items() if field}


def source_of(volume: Volume) -> dict[str, dict[str, object]]:
    """Return the source of a pod's volume: its kind, and the name of what is mounted."""
    kind, key, where = next(
        (kind, key, getattr(volume, field))
        for field, (kind, key) in _SOURCES.items()
        if getattr(volume, field)
    )
    return {kind: {key: where}}


def _pairs(items: Iterable[str]) -> Iterator[tuple[str, str]]:
    for item in items:
        name, _, value = item.partition("=")
        yield name, value


def _volume(index: int, volume: Volume) -> Group:
    return {"name": f"volume-{index}", **source_of(volume)}


def _mount(index: int, volume: Volume) -> Group:
    mount: Group = {"name": f"volume-{index}", "mountPath": volume.mount}
    return {**mount, "readOnly": True} if volume.read_only else mount


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
