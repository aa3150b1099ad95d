"""Measurements that nodes report, and samples for the fit."""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.errors import InvalidValueError
from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role
from dlrover_nb.core.structs.training.batch_cost import BatchCost
from dlrover_nb.core.structs.training.gradient_ages import GradientAges


@dataclass(frozen=True, slots=True)
class TimeSplit:
    """Parts of the mean iteration of one node in seconds; they sum to its `iter_s`.

    A worker waits for data (`data`), for the rows that it pulls (`lookup`) and the gradients that it pushes
    (`update`), for its peers where they keep in step (`peers`), computes, and does the rest. Push and pull
    travel in one message; its wait is divided by the working times that the PS reports, and the transfer time
    by their bytes. A wait that overlaps with computing is not counted. A PS serves: `lookup` is
    gathering rows, `update` applying gradients, `idle` waiting for requests.
    """

    data_s: float = 0.0
    lookup_s: float = 0.0
    compute_s: float = 0.0
    update_s: float = 0.0
    idle_s: float = 0.0
    other_s: float = 0.0
    peers_s: float = 0.0

    @property
    def total_s(self) -> float:
        """Sum of all parts."""
        served_s = self.lookup_s + self.update_s + self.peers_s
        return self.data_s + served_s + self.compute_s + self.idle_s + self.other_s


@dataclass(frozen=True, slots=True)
class NodeSample:
    """One report of one node over the window since its last one.

    `n_iter` and `n_sample` count what was finished in the window of `window_s` seconds (for a PS:
    requests served, and 0). `cpu_cores` is CPU time over wall time. `memory_mib` is resident memory,
    `parameter_mib` what parameters and optimizer state take of it (PS only). `n_byte_sent` and
    `n_byte_received` are what went between workers and PS in the window; a PS counts only what crossed its
    sockets, and not what lay in memory that it shares with workers of its host. `link_gbit_per_s` is the
    most that a probe of its connection to a PS carried; 0: it made none. `carrier` says what carries the
    arrays between a worker and its PS, such as shared memory; empty: nothing does, or it is not known.
    `copy_mib` are copies of other PS that the node keeps; `memory_mib` is without them, as they are freed
    when it needs their memory. `throttled_s` and `starved_s` are what all its threads together waited for
    processors in the window: as its own quota was used up, and as other processes had them; `host_cores` is
    the processor time of all processes of its host over wall time. None: not known. `machine` is where it
    runs, as in its Hello. `ages` are those of the gradients that a PS applied in the last seconds, by
    worker; they come every five seconds. `batch_cost` is what a worker measured of its mini-batches; None: it
    did not. `gpu_busy` is the share of the last moments in which the node's GPUs computed, `gpu_memory_mib`
    what is in use on them; None: it has none, or nothing counts that.

    All measurements are finite: JSON, and so a journal, holds no others. A loss may be NaN; it is read back
    as unknown.
    """

    node: str
    role: Role
    at_s: float
    window_s: float
    n_iter: int
    n_sample: int
    iter_s: float
    split: TimeSplit
    cpu_cores: float
    memory_mib: float
    parameter_mib: float = 0.0
    n_row: int = 0
    loss: float | None = None
    n_byte_sent: int = 0
    n_byte_received: int = 0
    link_gbit_per_s: float = 0.0
    carrier: str = ""
    copy_mib: float = 0.0
    throttled_s: float | None = None
    starved_s: float | None = None
    host_cores: float | None = None
    machine: str = ""
    ages: tuple[GradientAges, ...] = ()
    batch_cost: BatchCost | None = None
    gpu_busy: float | None = None
    gpu_memory_mib: float | None = None

    def __post_init__(self) -> None:
        for name in (
            "at_s",
            "window_s",
            "iter_s",
            "cpu_cores",
            "memory_mib",
            "parameter_mib",
            "link_gbit_per_s",
            "copy_mib",
        ):
            _check.finite(name, getattr(self, name))
        _check.finite("split", self.split.total_s)
        for name in ("throttled_s", "starved_s", "host_cores", "gpu_busy", "gpu_memory_mib"):
            _check.finite(name, getattr(self, name) or 0.0)


@dataclass(frozen=True, slots=True)
class ProfileSample:
    """One row of the fit: what a plan did over one steady window.

    `samples_per_s` is what was measured. `iter_s` is T_iter of Eq. 1, the mean iteration of one worker.
    `compute_share` and `wait_share` are the parts of it that workers computed and waited for PS; None: not
    known, as where a job reports no parts.

    `host_share` is the part of the measured iteration that the node lost to other processes of its host. What
    the plan alone gives is `plan_samples_per_s`, and the shares are parts of its iteration. `cpu_s` is the
    processor time of one iteration of a worker, which hardly depends on neighbors; None: not known.

    A row may stand for many windows: `n_window` of them, whose log speeds differ by `log_scatter` (standard
    deviation) from the mean that `samples_per_s` then is.
    """

    at_s: float
    window_s: float
    plan: ResourcePlan
    batch_size: int
    samples_per_s: float
    compute_share: float | None = None
    wait_share: float | None = None
    n_window: int = 1
    log_scatter: float = 0.0
    host_share: float = 0.0
    cpu_s: float | None = None

    def __post_init__(self) -> None:
        _check.above_zero("samples_per_s", self.samples_per_s)
        _check.above_zero("window_s", self.window_s)
        _check.at_least("batch_size", self.batch_size, 1)
        _check.at_least("n_window", self.n_window, 1)
        if not 0 <= self.host_share < 1:
            raise InvalidValueError(
                f"host_share must be a part of a step, 0 to less than 1, got {self.host_share}"
            )

    @property
    def plan_samples_per_s(self) -> float:
        """Samples per second of the plan on a host without other load."""
        return self.samples_per_s / (1 - self.host_share)

    @property
    def iter_s(self) -> float:
        """Seconds of one iteration of one worker (Eq. 1), without what the host's other load took."""
        return self.plan.worker.count * self.batch_size / self.plan_samples_per_s
