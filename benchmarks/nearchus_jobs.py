"""The jobs and clusters of `nearchus.py`: what a job does with cores that are given to its nodes.

A fluid model of one job on PS with full-duplex links, made of what the paper measured:

- A worker with `a` cores uses a / (1 + a / 80) of them. It gives the points of Fig. 3 (16 of 20, 21 of 32 and
  37 of 64 cores; the law: 16, 22.9, 35.6) and those of Fig. 4 (23 of 29.5, 5.7 of 5.9; the law: 21.6, 5.5).
- The speed is what the workers use over the core seconds of a step (Fig. 2: it is linear in the used cores).
- A step pulls and pushes all parameters, in 4 bytes each. Where the link of the fullest PS is full, all
  workers wait in proportion. A server has one link, so more PS than servers do not help.
- A PS takes 0.03 core seconds for a million parameters: of 33 cores that were used where Fig. 5's link was
  full, at 1.36 steps/s of 23 million parameters, the two workers used 32.

ResNet-50 takes 20 core seconds per step: by Fig. 5b one PS at 1 Gbit/s is full with 8 workers of 3 cores
(17), by Fig. 5a with two workers that use 16 cores each (24). The other models follow by their
multiplications at the same image size, from the papers that Table II cites. Their batch sizes are not
given; all are taken as ResNet-50's.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlrover_nb.core.bottleneck import JobUse, NodeUse
from dlrover_nb.core.structs.plan.resources import ResourcePlan, Role, RolePlan

HALF_CORES = 80.0
RESNET_CORE_S, RESNET_GMAC = 20.0, 4.1
PS_CORE_S_PER_MILLION = 0.03
HOT_PS = 0.05  # how much more than its even share the fullest PS holds, as in `core.simulator`
NODE_MIB = 1024
N_SAMPLE = 30

Nodes = tuple[tuple[Role, float], ...]  # role and cores


@dataclass(frozen=True)
class Model:
    name: str
    million_parameters: float
    gmac: float  # of one image of 224 x 224

    @property
    def n_byte(self) -> float:
        return 4e6 * self.million_parameters

    @property
    def core_s(self) -> float:
        return RESNET_CORE_S * self.gmac / RESNET_GMAC

    @property
    def ps_core_s(self) -> float:
        return PS_CORE_S_PER_MILLION * self.million_parameters


MODELS = (
    Model("MobileNet", 4.2, 0.57),
    Model("DenseNet-201", 20.0, 4.3),
    Model("NasNetLarge", 84.9, 10.9),  # 23.8 at 331 x 331
    Model("ResNet-50", 23.0, 4.1),
    Model("Inception-V3", 24.0, 3.2),  # 5.7 at 299 x 299
)


@dataclass(frozen=True)
class Cluster:
    name: str
    cores: float
    n_server: int
    server_cores: float
    link_gbit_per_s: float

    @property
    def link_bytes_per_s(self) -> float:
        return self.link_gbit_per_s * 1e9 / 8


A = Cluster("A", 100.0, 9, 20.0, 1.0)
B = Cluster("B", 300.0, 9, 64.0, 50.0)


def usable(cores: float) -> float:
    return cores / (1 + cores / HALF_CORES)


def ps_shares(n_ps: int) -> list[float]:
    """Return the part of the parameters on each PS, the fullest first."""
    if n_ps == 1:
        return [1.0]
    hot = (1 + HOT_PS) / n_ps
    return [hot, *[(1 - hot) / (n_ps - 1)] * (n_ps - 1)]


def steps_per_s(model: Model, nodes: Nodes, cluster: Cluster) -> float:
    workers = [cores for role, cores in nodes if role is Role.WORKER]
    ps = [cores for role, cores in nodes if role is Role.PS]
    shares = ps_shares(len(ps))
    n_link = min(len(ps), cluster.n_server)
    by_network = cluster.link_bytes_per_s / (model.n_byte * ps_shares(n_link)[0])
    by_ps = min(usable(a) / (model.ps_core_s * share) for a, share in zip(ps, shares, strict=True))
    return min(sum(map(usable, workers)) / model.core_s, by_network, by_ps)


def measured(model: Model, nodes: Nodes, cluster: Cluster) -> JobUse:
    """Return what the nodes report."""
    speed = steps_per_s(model, nodes, cluster)
    workers = [cores for role, cores in nodes if role is Role.WORKER]
    running = speed * model.core_s / sum(map(usable, workers))
    n_ps = len(nodes) - len(workers)
    shares, found = iter(ps_shares(n_ps)), []
    rate = speed * model.n_byte * ps_shares(min(n_ps, cluster.n_server))[0]
    for i, (role, cores) in enumerate(nodes):
        is_ps = role is Role.PS
        used = speed * model.ps_core_s * next(shares) if is_ps else usable(cores) * running
        bytes_per_s = (rate,) * N_SAMPLE if is_ps else ()
        found.append(NodeUse(f"{role}-{i}", role, cores, (used,) * N_SAMPLE, bytes_per_s))
    return JobUse(plan_of(nodes), tuple(found), (), cluster.link_bytes_per_s)


def nodes_of(plan: ResourcePlan) -> Nodes:
    return ((Role.PS, plan.ps.cpu),) * plan.ps.count + ((Role.WORKER, plan.worker.cpu),) * plan.worker.count


def plan_of(nodes: Nodes) -> ResourcePlan:
    """Return the counts of nodes as a plan, with the mean cores of each role."""
    own = {role: [cores for each, cores in nodes if each is role] for role in Role}
    worker, ps = (RolePlan(len(own[r]), sum(own[r]) / len(own[r]), NODE_MIB) for r in (Role.WORKER, Role.PS))
    return ResourcePlan(worker, ps)


def total(nodes: Nodes) -> float:
    return sum(cores for _, cores in nodes)
