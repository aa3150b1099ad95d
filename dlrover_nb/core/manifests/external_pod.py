"""The pod of an external program, derived from that of a node of ours; pure.

It has the parts of every pod of the job except the job's secrets: instead it has a token that only allows
reporting steps. It waits for an annotation, which the kubelet writes into a file. The workers of an
all-reduce job are programs of ours, and read the job from its secret as other nodes do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlrover_nb.core.manifests.pod_parts import (
    CERTIFICATE_KEY,
    HTTPS_PORT,
    JOB_LABEL,
    PREFIX,
    READ_BY_GROUP,
    REPORT_KEY,
    ROLE_LABEL,
    RUN_LABEL,
    secret_name,
)
from dlrover_nb.core.manifests.podspec import beside_roles
from dlrover_nb.core.master.external.launch.pod_script import (
    CLUSTER_VAR,
    HTTPS_PORT_VAR,
    REPORT_FILE_VAR,
    REPORT_TOKEN_VAR,
    TRUSTED_VAR,
    image,
    program,
)
from dlrover_nb.core.structs.job.spec_choices import Sync
from dlrover_nb.core.structs.training.reported import TOKEN_FILE_VAR
from dlrover_nb.core.structs.wire.pod_contract import (
    CODE_FOLDER,
    FOLDER_VAR,
    JOB_FOLDER,
    MASTER_FILE,
    POD_FOLDER,
    REPORT_FOLDER,
)

if TYPE_CHECKING:
    from dlrover_nb.core.manifests.kinds import Doc
    from dlrover_nb.core.structs.job.external import ExternalSpec
    from dlrover_nb.core.structs.plan.resources import Role
    from dlrover_nb.core.structs.wire.pod_contract import PodJob

CLUSTER_NOTE = f"{PREFIX}cluster"  # annotation: shell text with the variables of the program
CLUSTER_FILE = f"{POD_FOLDER}/cluster"
TOKEN_FILE, CERTIFICATE_FILE = f"{REPORT_FOLDER}/token", f"{REPORT_FOLDER}/certificate"
GRACE_S = 30  # of a pod that others delete: the program may save its training


def as_external(spec: Doc, job: PodJob, external: ExternalSpec, role: Role) -> Doc:
    """Return the ``spec`` of a pod that runs the user's program instead of ours."""
    (container,) = spec["containers"]
    own_image, is_ours = image(external, role), job.spec.sync is Sync.ALLREDUCE
    hidden = set() if is_ours else {JOB_FOLDER, CODE_FOLDER}
    mounts = [m for m in container["volumeMounts"] if m["mountPath"] not in hidden]
    token = _token_volume(job)
    container = container | {
        "command": list(program(external, role, python=job.spec.kubernetes.python)),
        "env": _env(container["env"], job, external, role),
        "volumeMounts": [*mounts, {"name": token["name"], "mountPath": REPORT_FOLDER, "readOnly": True}],
        **({"image": own_image} if own_image else {}),
    }
    mounted = {mount["name"] for mount in mounts}
    volumes = [*(_with_cluster(each) for each in spec["volumes"] if each["name"] in mounted), token]
    of_run = {JOB_LABEL: job.spec.name, RUN_LABEL: job.run}
    affinity = beside_roles(spec.get("affinity") or {}, external.program(role), of_run, ROLE_LABEL)
    where = {"affinity": affinity} if affinity else {}
    return (
        spec
        | where
        | {
            "containers": [container],
            "volumes": volumes,
            "terminationGracePeriodSeconds": GRACE_S,
        }
    )


def _env(env: list[Doc], job: PodJob, external: ExternalSpec, role: Role) -> list[Doc]:
    """Return the variables: those of all pods, the role's own, and ours, which win."""
    theirs = dict(item.partition("=")[::2] for item in external.program(role).env)
    ours = {
        CLUSTER_VAR: CLUSTER_FILE,
        REPORT_FILE_VAR: MASTER_FILE,
        TOKEN_FILE_VAR: TOKEN_FILE,
        TRUSTED_VAR: CERTIFICATE_FILE,
        HTTPS_PORT_VAR: str(HTTPS_PORT),
    }
    values = theirs | ours
    hidden = set() if job.spec.sync is Sync.ALLREDUCE else {FOLDER_VAR}
    others = [each for each in env if each["name"] not in {*values, *hidden}]
    token = {"secretKeyRef": {"name": secret_name(job.spec.name), "key": REPORT_KEY}}
    return [
        *others,
        *({"name": name, "value": value} for name, value in values.items()),
        {"name": REPORT_TOKEN_VAR, "valueFrom": token},
    ]


def _token_volume(job: PodJob) -> Doc:
    """Return the volume with the token of reports and the master's certificate, which clients read."""
    names = {REPORT_KEY: TOKEN_FILE, CERTIFICATE_KEY: CERTIFICATE_FILE}
    items = [{"key": key, "path": path.rpartition("/")[2]} for key, path in names.items()]
    source = {"secretName": secret_name(job.spec.name), "defaultMode": READ_BY_GROUP, "items": items}
    return {"name": "report", "secret": source}


def _with_cluster(volume: Doc) -> Doc:
    if "downwardAPI" not in volume:
        return volume
    where = {"fieldPath": f"metadata.annotations['{CLUSTER_NOTE}']"}
    items = [*volume["downwardAPI"]["items"], {"path": CLUSTER_FILE.rpartition("/")[2], "fieldRef": where}]
    return volume | {"downwardAPI": {"items": items}}
