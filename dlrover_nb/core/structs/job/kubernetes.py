"""Settings of a job's pods that are not part of its plan.

Labels and annotations of a user are checked by Kubernetes' own rules where the job is read, since the API
server would refuse a worker's pod only when the job runs. Keys that this product or a controller sets are
refused rather than overwritten: a label that silently does not hold is looked for in vain.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from dlrover_nb.core.basics.redaction import BareRepr
from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check

DEFAULT_IMAGE = "dlrover-nb:0.2.0"
GPU_RESOURCE = "nvidia.com/gpu"  # as NVIDIA's device plugin names it
STATE = "/dlrover-nb/state"  # where run folders lie in pods; a volume here outlives them
DLROVER, AUTO, NONE = "dlrover", "auto", "none"  # values of `KubernetesSpec.operator`
_OPERATORS = ("", DLROVER, AUTO, NONE)
_PULL_POLICIES = ("", "Always", "IfNotPresent", "Never")
_LONGEST_TTL_S = (1 << 31) - 1  # an int32 of the API
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


_TAKEN = ("app.kubernetes.io/managed-by", "app.kubernetes.io/part-of", "job-name", "controller-uid")
_TAKEN_PREFIXES = ("dlrover-nb/", "batch.kubernetes.io/", "elasticjob.dlrover/")
_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LONGEST_PREFIX = 253
# Kubernetes takes 256 KiB of an object's annotations; the rest is for those of this product.
MOST_BYTES = 64 << 10


def gpu_resource(n_gpu: int) -> dict[str, str]:
    """Return so many GPUs as part of a container's resources; nothing where there are none."""
    return {GPU_RESOURCE: str(n_gpu)} if n_gpu else {}


def check_labels(items: tuple[str, ...]) -> None:
    """Refuse labels, ``NAME=VALUE`` each, that an API server would refuse, or that are not the user's."""
    for item in items:
        key, value = _pair("labels", item)
        _check_key("labels", key)
        if value and not _NAME.fullmatch(value):
            raise InvalidValueError(
                f"the value of label {key} must be empty or at most 63 letters, digits, '-', '_' and '.', "
                f"with a letter or digit at both ends, got {value!r}"
            )


def check_annotations(items: tuple[str, ...]) -> None:
    """Refuse annotations, ``NAME=VALUE`` each; as `check_labels`, but their values are any text."""
    for item in items:
        _check_key("annotations", _pair("annotations", item)[0])
    if (n_byte := sum(len(item.encode()) for item in items)) > MOST_BYTES:
        raise InvalidValueError(
            f"annotations must be at most {MOST_BYTES >> 10} KiB together, got {n_byte >> 10} KiB; "
            "mount a ConfigMap as a volume instead"
        )


def _pair(field: str, item: str) -> tuple[str, str]:
    key, equals, value = item.partition("=")
    if not equals:
        raise InvalidValueError(f"{field} must hold NAME=VALUE, got {item!r}")
    return key, value


def _check_key(field: str, key: str) -> None:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.fullmatch(name) or (slash and not _is_domain(prefix)):
        raise InvalidValueError(
            f"a key in {field} must be NAME or DOMAIN/NAME, the name of at most 63 letters, digits, '-', '_' "
            f"and '.', as in kueue.x-k8s.io/queue-name, got {key!r}"
        )
    if key in _TAKEN or key.startswith(_TAKEN_PREFIXES):
        raise InvalidValueError(
            f"{field} must leave {key} out, which is set for each job's objects; choose another key"
        )


def _is_domain(text: str) -> bool:
    return len(text) <= _LONGEST_PREFIX and all(map(_DNS_LABEL.fullmatch, text.split(".")))


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that every pod of a job mounts: data, or storage for its state.

    Parameters
    ----------
    mount
        Absolute path in the pods. A volume at `STATE` keeps the run folder: without one a job does not
        outlive its master's pod, and a parameter server that is lost takes its parameters with it.
    claim, host_path, config_map, secret
        The source, exactly one of them: a PersistentVolumeClaim (ReadWriteMany where pods run on several
        machines), a folder of the machines themselves, a ConfigMap or a Secret.
    read_only
        Whether pods may only read it.
    """

    mount: str
    claim: str = ""
    host_path: str = ""
    config_map: str = ""
    secret: str = ""
    read_only: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("claim", "host_path", "config_map", "secret") if getattr(self, name)]
        if len(given) != 1:
            got = " and ".join(given) or "none"
            raise InvalidValueError(f"a volume is one of claim, host_path, config_map or secret, got {got}")
        for name in ("mount", "host_path"):
            path = getattr(self, name)
            if path and not path.startswith("/"):
                raise InvalidValueError(f"{name} of a volume must be an absolute path, got {path!r}")
        if not self.mount:
            raise InvalidValueError("a volume needs its path in pods; add mount: /data")


@dataclass(frozen=True, slots=True, repr=False)
class KubernetesSpec(BareRepr):
    """Settings of the pods of a job; ignored by other clusters.

    Empty settings are taken from the ConfigMap ``dlrover-nb`` of the namespace, which holds the
    administrators' settings for all jobs.

    Parameters
    ----------
    image
        Image with this package and its extras ``torch`` and ``kubernetes``; empty: the namespace's, else
        `DEFAULT_IMAGE`.
    pull_policy
        ``Always``, ``IfNotPresent``, ``Never``; empty: the cluster's own rule.
    pull_secrets
        Names of Secrets with which images are pulled.
    python
        Interpreter in the image.
    volumes
        Volumes of all pods.
    env
        Variables of all pods, ``NAME=VALUE`` each; nothing secret, as they are readable in pods.
    env_secrets
        Names of Secrets whose keys become variables: credentials of storage, or of the history
        (``DLROVER_NB_HISTORY``, a database URL).
    node_selector
        Labels of the machines to run on, ``KEY=VALUE`` each.
    labels, annotations
        Of the job's object and all its pods, ``NAME=VALUE`` each: the queue of an admission system, the name
        of a cost centre, a word to a service mesh or an autoscaler.
    tolerations
        Tolerated taints, as ``kubectl taint`` writes them: ``KEY=VALUE:EFFECT``, ``KEY:EFFECT`` or ``KEY``.
    priority_class
        Priority class of all pods.
    spread
        Whether to prefer different machines, and all zones evenly, for parameter servers and for workers.
    service_account
        An existing one for the master; empty: each job creates its own with minimal rights.
    code_url
        Folder, as any URL that fsspec knows, for a notebook's code that is too large for a Secret, and
        for the values that a module's own embedding tables begin with.
    master_cpu, master_memory_mib
        CPU and memory of the job's master. From 64 nodes on, a process beside it that computes fits and
        advice takes 100 MiB of it.
    run_as_user
        User id in the containers; never root.
    operator
        Which program runs the pods of an external job: ``dlrover``, DLRover's operator, which the cluster
        must have; ``auto``, that operator if it is installed; ``none``, this job's own master; empty: the
        namespace's choice, else ``none``, so that a job file means the same on each cluster. It does not
        apply to jobs of our own runtime.
    linger_s
        How long the master answers after the job's end, > 0; then its pod ends, and its last snapshot is kept
        with the Job.
    ttl_s
        Seconds after the end of the master's pod until the cluster deletes the Job, and with it how the job
        ended: what stays is on volumes, and in a history. None: never.
    """

    image: str = ""
    pull_policy: str = ""
    pull_secrets: tuple[str, ...] = ()
    python: str = ""
    volumes: tuple[Volume, ...] = ()
    env: tuple[str, ...] = ()
    env_secrets: tuple[str, ...] = ()
    node_selector: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()
    priority_class: str = ""
    spread: bool = True
    service_account: str = ""
    code_url: str = ""
    master_cpu: float = 0.25
    master_memory_mib: int = 768
    run_as_user: int = 65532
    operator: str = ""
    linger_s: float = 600.0
    ttl_s: int | None = None

    def __post_init__(self) -> None:
        if self.pull_policy not in _PULL_POLICIES:
            raise InvalidValueError(
                f"pull_policy must be Always, IfNotPresent or Never, got {self.pull_policy!r}"
            )
        if self.operator not in _OPERATORS:
            raise InvalidValueError(f"operator must be dlrover, auto or none, got {self.operator!r}")
        for name in ("env", "node_selector"):
            _check.settings(name, getattr(self, name))
        check_labels(self.labels)
        check_annotations(self.annotations)
        for text in self.tolerations:
            _check_toleration(text)
        mounts = [volume.mount.rstrip("/") for volume in self.volumes]
        if doubled := {mount for mount in mounts if mounts.count(mount) > 1}:
            raise InvalidValueError(f"one volume to a path, got several at {', '.join(sorted(doubled))}")
        _check.above_zero("master_cpu", self.master_cpu)
        _check.at_least("master_memory_mib", self.master_memory_mib, 128)
        _check.at_least("run_as_user", self.run_as_user, 1, hint="pods do not run as root")
        _check.above_zero("linger_s", self.linger_s)
        if self.ttl_s is not None:
            _check.at_least("ttl_s", self.ttl_s, 0, hint="null keeps ended jobs")
            _check.at_most("ttl_s", self.ttl_s, _LONGEST_TTL_S)

    @property
    def keeps_state(self) -> bool:
        """Whether the run folder outlives pods."""
        return any(volume.mount.rstrip("/") == STATE for volume in self.volumes)


def _check_toleration(text: str) -> None:
    taint, colon, effect = text.partition(":")
    if not taint.partition("=")[0] or (colon and effect not in _EFFECTS):
        raise InvalidValueError(
            f"a toleration must be KEY=VALUE:EFFECT, KEY:EFFECT or KEY, with one of {', '.join(_EFFECTS)}, "
            f"got {text!r}"
        )
