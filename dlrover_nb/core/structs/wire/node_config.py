"""What a node process is started with."""

from __future__ import annotations

from dataclasses import dataclass, field

from dlrover_nb.core.structs.data.features import FeatureSpec
from dlrover_nb.core.structs.job.job import JobSpec
from dlrover_nb.core.structs.plan.resources import Need, Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The configuration of a node process.

    `folder` is the job's private run folder (ipc sockets, keys, checkpoints); `master` the endpoint to
    say Hello to; `public_key`/`secret_key` the job's CURVE pair (Z85), used on tcp. `listen` is the
    prefix of the endpoint that a PS binds: ``ipc`` or ``tcp://ADDRESS``. `master_file` names the file
    that holds the master's endpoint when that may change; empty: it does not. `avoid` names nodes of the job
    that are too slow where they stand: this one had better stand elsewhere. One that `starts_gently` leaves
    cores to others while it imports its program, where the backend can do that. `batch_costs` are what
    earlier jobs of this program measured of mini-batches, one for each kind of device.
    """

    node: str
    role: Role
    spec: JobSpec
    features: FeatureSpec
    cpu: float
    memory_mib: int
    master: str
    listen: str
    folder: str
    public_key: str
    secret_key: str = field(repr=False)
    master_file: str = ""
    avoid: tuple[str, ...] = ()
    starts_gently: bool = False
    batch_costs: tuple[BatchCost, ...] = ()

    @property
    def gpu(self) -> int:
        """GPUs of the node."""
        return self.spec.gpu_of(self.role)

    @property
    def need(self) -> Need:
        """What it holds of a machine."""
        return Need(self.cpu, self.memory_mib, self.gpu)
