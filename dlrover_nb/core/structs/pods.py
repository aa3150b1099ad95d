"""What a job's pods are told, and where it lies in them: the contract between whoever makes them and theirs.

A job's Secret holds one `PodJob` for all of its pods. What differs between them stands in variables, and what
changes while they run in a file that the kubelet keeps up to date. Nothing here is known to Kubernetes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.structs.capacity import Capacity
from dlrover_nb.core.structs.job import FeatureSpec, JobSpec
from dlrover_nb.core.structs.kubernetes import STATE

JOB_FOLDER = "/dlrover-nb/job"  # the job's Secret
JOB_FILE = f"{JOB_FOLDER}/job.json"
CODE_FOLDER = "/dlrover-nb/code"  # the Secret of the user's own code
POD_FOLDER = "/dlrover-nb/pod"  # what the kubelet tells of the pod itself
MASTER_FILE = f"{POD_FOLDER}/master"  # an endpoint; it is another one when the master comes back elsewhere
END_FILE = "/dev/termination-log"  # terminationMessagePath: one line why a pod failed

NODE_VAR = "DLROVER_NB_NODE"
ROLE_VAR = "DLROVER_NB_ROLE"
CPU_VAR = "DLROVER_NB_CPU"
MEMORY_VAR = "DLROVER_NB_MEMORY_MIB"
FOLDER_VAR = "DLROVER_NB_FOLDER"
IP_VAR = "POD_IP"
POD_ENV = {"HOME": "/tmp", "USER": "dlrover-nb"}  # noqa: S108 - the user id has no name and no home in an image

CODE_BYTES = 900 << 10  # of code in a Secret; Kubernetes takes 1 MiB with all that is around it


@dataclass(frozen=True, slots=True)
class PodJob:
    """What every pod of a job is told: ``job.json`` of its Secret.

    Parameters
    ----------
    spec
        The job. A master that completed it (what the data told, what past jobs taught) writes it back before
        it starts nodes.
    features
        How rows become numbers; None: the data lie where only pods see them, so the master looks at them
        first and then writes this.
    run
        8 hexadecimal digits that tell runs of one name apart.
    public_key, secret_key
        The CURVE pair between the job's pods (Z85).
    access
        What a client's request to the master must hold.
    code_url
        Folder with the user's own code; empty: it is in `CODE_FOLDER`, if there is any.
    capacity
        What the client saw of the cluster; None: nothing. It holds where the master may not look itself.
    """

    spec: JobSpec
    features: FeatureSpec | None
    run: str
    public_key: str
    secret_key: str = field(repr=False)
    access: str = field(repr=False)
    code_url: str = ""
    capacity: Capacity | None = None


def run_name(job: str, run: str) -> str:
    """Return what tells one run of a job from all others: part of names of pods and folders."""
    return f"{job}-{run}"


def state_folder(job: str, run: str) -> str:
    """Return the run folder in pods."""
    return f"{STATE}/{run_name(job, run)}"


def keeps_checkpoints(spec: JobSpec) -> bool:
    """Whether checkpoints outlive the pods that write them."""
    return bool(spec.checkpoint_url) or spec.kubernetes.keeps_state


def outlives_node(spec: JobSpec, folder: str) -> bool:
    """Whether what one node saves can be read by the next, where `folder` is the job's run folder.

    A pod's own folders go with it; everywhere else nodes share the run folder.
    """
    return not folder.startswith(f"{STATE}/") or keeps_checkpoints(spec)


def storage_advice(spec: JobSpec) -> str:
    """Return one line about what is lost with pods for want of a place; empty: nothing."""
    lasting = f"mount a volume at {STATE}"
    if not keeps_checkpoints(spec):
        return (
            "nothing outlives this job's pods: a parameter server that is lost makes it begin anew, and no "
            f"model is left; set checkpoint_url, or {lasting}"
        )
    if not spec.kubernetes.keeps_state:
        return f"the job does not outlive its master's pod; {lasting} if it is to"
    return ""
