"""The contract between the creator of a job's pods and the programs in them: configuration and paths.

A job's Secret holds one `PodJob` for all of its pods. Differences between pods are in variables; values that
change while they run are in a file that the kubelet updates. Kubernetes knows none of this.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field

from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import Averages, JobSpec
from dlrover_nb.core.structs.job.kubernetes import STATE
from dlrover_nb.core.structs.plan.capacity import Capacity
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.training.checkpoint_places import FirstParameters
from dlrover_nb.core.structs.training.checkpoints import PeerCopies

JOB_FOLDER = "/dlrover-nb/job"  # the job's Secret
JOB_FILE = f"{JOB_FOLDER}/job.json"
CODE_FOLDER = "/dlrover-nb/code"  # the Secret with the user's code
POD_FOLDER = "/dlrover-nb/pod"  # metadata of the pod, from the kubelet
REPORT_FOLDER = "/dlrover-nb/report"  # the token of reports, of external programs
MASTER_FILE = f"{POD_FOLDER}/master"  # an endpoint, which changes when a restarted master has another address
END_FILE = "/dev/termination-log"  # terminationMessagePath: one line why a pod failed

NODE_VAR = "DLROVER_NB_NODE"
ROLE_VAR = "DLROVER_NB_ROLE"
CPU_VAR = "DLROVER_NB_CPU"
MEMORY_VAR = "DLROVER_NB_MEMORY_MIB"
FOLDER_VAR = "DLROVER_NB_FOLDER"
IP_VAR = "POD_IP"
MACHINE_VAR = "DLROVER_NB_MACHINE"  # the machine under the pod
POD_ENV = {"HOME": "/tmp", "USER": "dlrover-nb"}  # noqa: S108 - the user id has no name and no home in an image

CHECK_PATH, CHECK_HEADER = "/v1/checked", "X-Dlrover-Check"  # of the master's HTTP: what came of a try

CODE_BYTES = 900 << 10  # of code in a Secret; Kubernetes allows 1 MiB in total


@dataclass(frozen=True, slots=True)
class PodJob:
    """The configuration of every pod of a job: ``job.json`` of its Secret.

    Parameters
    ----------
    spec
        The job. A master that completed it (from the data and from past jobs) writes it back before it starts
        nodes.
    features
        The encoding of rows; None: only pods can read the data, so the master reads them first and then
        writes this.
    run
        8 hexadecimal digits that distinguish runs of one name.
    public_key, secret_key
        The CURVE pair between the job's pods (Z85).
    access
        The access token of client requests to the master.
    code_url
        Folder with the user's own code; empty: it is in `CODE_FOLDER`, if there is any.
    capacity
        The capacity that the client read; None: unknown. It is used where the master may not read it.
    owner
        Kind of the object that keeps the master's pod and owns all others: ``Job``, or ``ElasticJob`` where
        DLRover's operator does that.
    origin
        Files of the checkpoint that an all-reduce job begins from, each with its checksum; the master writes
        them.
    first
        The parameters that a user's module had when it was submitted, at a URL; None: it has none.
    batch_costs
        As in `NodeConfig`; the master writes them.
    """

    spec: JobSpec
    features: FeatureSpec | None
    run: str
    public_key: str
    secret_key: str = field(repr=False)
    access: str = field(repr=False)
    code_url: str = ""
    capacity: Capacity | None = None
    owner: str = "Job"
    origin: tuple[tuple[str, str], ...] = ()
    first: FirstParameters | None = None
    batch_costs: tuple[BatchCost, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeTried:
    """What came of a user's code in the pod that tried it.

    Parameters
    ----------
    error
        What is wrong with the data or the code, in one line; empty: nothing.
    features
        The encoding of rows; None where something is wrong.
    n_dense, averages
        Of the model, as in `ModelSpec`.
    """

    error: str = ""
    features: FeatureSpec | None = None
    n_dense: int = 0
    averages: tuple[Averages, ...] = ()


def check_token(job: PodJob) -> str:
    """Return the token with which that pod reports to its master; it allows nothing else."""
    return hmac.new(job.access.encode(), b"check", "sha256").hexdigest()


def run_name(job: str, run: str) -> str:
    """Return the unique name of a run, a part of names of pods and folders."""
    return f"{job}-{run}"


def state_folder(job: str, run: str) -> str:
    """Return the run folder in pods."""
    return f"{STATE}/{run_name(job, run)}"


def keeps_checkpoints(spec: JobSpec) -> bool:
    """Whether checkpoints outlive the pods that write them."""
    return bool(spec.checkpoint_url) or spec.kubernetes.keeps_state


def outlives_node(spec: JobSpec, folder: str) -> bool:
    """Whether files of one node can be read by its successor; `folder` is the job's run folder.

    A pod's own folders are deleted with it; elsewhere nodes share the run folder.
    """
    return memory_outlives_node(folder) or keeps_checkpoints(spec)


def memory_outlives_node(folder: str) -> bool:
    """Whether shared memory stays on its host when a node ends; that of a pod is deleted with it."""
    return not folder.startswith(f"{STATE}/")


def storage_advice(spec: JobSpec) -> str:
    """Return one line about what is lost with pods without storage; empty: nothing."""
    lasting = f"mount a volume at {STATE}"
    if not keeps_checkpoints(spec):
        has_copies = spec.peer_copies is not PeerCopies.NEVER and spec.checkpoint_every_s > 0
        lost = "the loss of a parameter server restarts training from the beginning"
        if has_copies:
            lost = "checkpoints are in the memory of two pods each, so the loss of both restarts training"
        advice = f"set checkpoint_url, or {lasting}"
        return f"no file outlives this job's pods: {lost}, and no model is kept; {advice}"
    if not spec.kubernetes.keeps_state:
        return f"the job does not outlive its master's pod; {lasting} if it is to"
    return ""
