"""The bottleneck of a job with the numbers that say so.

Where nearly all cores are used there is none. Else the network of a PS is full (PSN), or a PS uses all its
cores (PSC), so that workers wait; or workers have more cores than they can use (MU): a process cannot use
any number of cores, and more processes with fewer cores each can. NEARCHUS measures PSC in its section III
and has no rule for it in section IV, where it takes MU wherever it finds no PSN: it would add workers to a
job whose workers wait. Where the capacity of the links is unknown, PSN can neither be claimed nor excluded,
and the sentence says so.

Some cores cannot be taken from a role: pins fix them, or its nodes have the smallest size already. That they
are idle says nothing about a bottleneck, so such a role is left out of the share that is judged. Rejected:
the share of all cores, which a small job with a pinned PS can never raise.

Where workers compute on GPUs that are busy nearly all the time, these are what limits the job, whatever its
cores do: each worker more brings another. The paper has no GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.bottleneck.use import BOTH, efficiency, gpu_share
from dlrover_nb.core.structs.job.tuning import Nearchus
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Collection

    from dlrover_nb.core.bottleneck.use import JobUse, NodeUse

BITS_PER_GBIT = 1e9
NO_PROBE = "no worker has measured its link"
GPU_BUSY = 0.9  # share of the time from which on GPUs limit a job


class Bottleneck(StrEnum):
    """What limits a job."""

    NONE = "none"
    MAXIMUM_UTILIZATION = "maximum utilization"  # MU of NEARCHUS
    PS_NETWORK = "network of a PS"  # PSN of NEARCHUS
    PS_COMPUTE = "computing of a PS"  # PSC of NEARCHUS
    GPU = "GPUs of workers"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A bottleneck, and what was measured.

    Parameters
    ----------
    judged
        The share of cores that is compared with the threshold: of all roles whose cores can be changed.
    job, worker, ps
        Used over allocated cores of all nodes (e_job), and of each role.
    allocated_cores
        Of all nodes.
    network, busiest
        What is known of the PS's links, and of the PS that uses most of its cores, as clauses.
    tuning
        Parameters of NEARCHUS by which it was made.
    gpu
        Share of the time in which the workers' GPUs computed; None: they have none, or nothing counts that.
    """

    bottleneck: Bottleneck
    judged: float
    job: float
    worker: float
    ps: float
    allocated_cores: float
    network: str
    busiest: str
    tuning: Nearchus = field(default_factory=Nearchus)
    gpu: float | None = None

    @property
    def words(self) -> str:
        """The bottleneck and its numbers in one sentence."""
        shares = f"workers {percent(self.worker)}, PS {percent(self.ps)}"
        used = f"{percent(self.job)} of {self.allocated_cores:g} cores are used ({shares})"
        if self.gpu is not None:
            used += f", and GPUs compute {percent(self.gpu)} of the time"
        match self.bottleneck:
            case Bottleneck.GPU:
                return f"The GPUs of the workers are the bottleneck: {used}."
            case Bottleneck.PS_NETWORK:
                return f"The network of a PS is the bottleneck: {self.network}; {used}."
            case Bottleneck.PS_COMPUTE:
                return f"The computing of a PS is the bottleneck: {self.busiest}; {used}; {self.network}."
            case Bottleneck.MAXIMUM_UTILIZATION:
                return f"The nodes do not use all their cores: {used}; {self.network}."
            case Bottleneck.NONE:
                return f"No bottleneck: {used}."


def diagnose(use: JobUse, *, fixed: Collection[Role] = ()) -> Diagnosis | None:
    """Name the bottleneck of a job; None until all its nodes have reported often enough.

    Parameters
    ----------
    fixed
        Roles whose nodes can give up no cores; where both are, all count.
    """
    if not use.is_complete():
        return None
    free = frozenset(BOTH - frozenset(fixed)) or BOTH
    judged, full = efficiency(use.of(free)), _fullest(use)
    busiest = max(use.of({Role.PS}), key=lambda node: node.efficiency())
    gpu = gpu_share(use.of({Role.WORKER}))
    return Diagnosis(
        Bottleneck.GPU if (gpu or 0.0) >= GPU_BUSY else _bottleneck(judged, full, busiest, use.tuning),
        judged,
        efficiency(use.nodes),
        efficiency(use.of({Role.WORKER})),
        efficiency(use.of({Role.PS})),
        round(sum(node.allocated_cores for node in use.nodes), 2),
        _network(use, full),
        f"{busiest.node} uses {percent(busiest.efficiency())} of its {busiest.allocated_cores:g} cores",
        use.tuning,
        gpu,
    )


def _bottleneck(judged: float, full: NodeUse | None, busiest: NodeUse, tuning: Nearchus) -> Bottleneck:
    if judged >= tuning.job_efficiency:
        return Bottleneck.NONE
    if full is not None:
        return Bottleneck.PS_NETWORK
    is_full = busiest.efficiency() >= tuning.job_efficiency
    return Bottleneck.PS_COMPUTE if is_full else Bottleneck.MAXIMUM_UTILIZATION


def _fullest(use: JobUse) -> NodeUse | None:
    """Return the PS whose link is full most often, if any is often enough."""
    link = use.link_bytes_per_s
    if link is None:
        return None
    often = [(ps.n_full(link), ps) for ps in use.of({Role.PS})]
    n_full, ps = max(often, key=lambda pair: pair[0])
    return ps if n_full > use.tuning.link_samples * len(ps.judged_bytes_per_s) else None


def _network(use: JobUse, full: NodeUse | None) -> str:
    link = use.link_bytes_per_s
    if link is None:
        why = use.link_source or NO_PROBE
        return (
            f"we cannot tell whether a PS's network is full, because {why} (set link_gbit_per_s to its "
            "capacity)"
        )
    source = f" ({use.link_source})" if use.link_source else ""
    capacity = f"{percent(use.tuning.link_share)} of {8 * link / BITS_PER_GBIT:.3g} Gbit/s{source}"
    if full is None:
        most = percent(use.tuning.link_samples)
        return f"no PS's network exceeds {capacity} in more than {most} of its samples"
    n_sample = len(full.judged_bytes_per_s)
    return f"{full.n_full(link)} of the last {n_sample} network samples of {full.node} exceed {capacity}"
