"""Chooses preferred hosts for the new nodes of a job: the scheduler of Qore-DL, over measured loads.

Each host that can hold a node is scored by its load with that node on it: U_l of `utilisation`, of what is
allocated or used there, whichever is more. Allocated cores may be used at any moment, and what is used beyond
them is of processes that no scheduler knows. Use counts where it is measured on all hosts: else one that is
measured would look worse than one that is not. For a parameter server memory counts as cores do for workers,
since its rows grow and its cores do not. Parameter servers of one job keep apart: a host that is lost, or
whose network is full, then concerns one of them. A host on which a node of the job was too slow comes last.

The paper draws hosts by beta_l, with 95 % on the lightest third. Here beta_l is the weight of each wish, and
a cluster that takes one wish only gets the lightest host: drawing spreads nodes of many jobs that were placed
by the same figures; our nodes count for the loads of those behind them, and the figures are read anew each
time.

Wishes are never demands: a host may have filled up since it was read, and then the cluster's own rule holds.
No wish is made where it would say nothing (all hosts that can hold the node are alike), and none where the
nodes do not all fit: who packs best then is the cluster. So a wish never takes the room of another node of
the same batch.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.basics.percents import percent
from dlrover_nb.core.deadline.utilisation import CPU_WEIGHT, host_load, host_weights
from dlrover_nb.core.structs.cluster.cluster_load import Amount, total
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, fits, in_steps
from dlrover_nb.core.structs.plan.resources import Need, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STALE_AFTER = 3  # intervals of reading after which loads say nothing of now
APART = 0.3  # of a host's load: what another parameter server of the job on it counts for
AVOIDED = 2.0  # of a host's load: what a slow node of the job on it counts for; more than any load
MOST_WEIGHT = 100  # of a wish, as Kubernetes counts
_ALIKE = 1e-6  # scores that differ by less say nothing


@dataclass(frozen=True, slots=True)
class Host:
    """One host, as last read.

    Parameters
    ----------
    key
        By which the cluster's scheduler knows it.
    name
        For people.
    has, allocated
        What it offers to nodes, and what nodes hold of it.
    used
        What all its processes use; None: not measured.
    n_ps
        Parameter servers of the job on it.
    """

    key: str
    name: str
    has: Amount
    allocated: Amount
    used: Amount | None = None
    n_ps: int = 0

    @property
    def free(self) -> Amount:
        """What no node holds."""
        return self.has.beyond(self.allocated)

    def holds(self, node: NewNode) -> bool:
        """Whether a node fits into what is free."""
        free = self.free
        return in_steps(node.cpu) <= in_steps(free.cpu) and node.memory_mib <= free.memory_mib

    def with_node(self, node: NewNode) -> Host:
        """Return the host with a node on it."""
        n_ps = self.n_ps + (node.role is Role.PS)
        return replace(self, allocated=total((self.allocated, Amount(node.cpu, node.memory_mib))), n_ps=n_ps)

    def load_with(self, node: NewNode) -> float:
        """Return U_l of the host with a node on it; memory first for a parameter server."""
        used = self.used or self.allocated
        cpu = _share(max(self.allocated.cpu, used.cpu) + node.cpu, self.has.cpu)
        memory = _share(
            max(self.allocated.memory_mib, used.memory_mib) + node.memory_mib, self.has.memory_mib
        )
        first, second = (memory, cpu) if node.role is Role.PS else (cpu, memory)
        return host_load(first, second, node.cpu_weight)


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that is to be started.

    Parameters
    ----------
    node
        Its name.
    avoid
        Keys of hosts where a node of the job is too slow, by that node's name.
    cpu_weight
        Weight of a host's cores in its load (alpha 1).
    """

    node: str
    role: Role
    cpu: float
    memory_mib: int
    avoid: tuple[tuple[str, str], ...] = ()
    cpu_weight: float = CPU_WEIGHT


@dataclass(frozen=True, slots=True)
class Wish:
    """The hosts that are preferred for a node: the best first, with weights from `MOST_WEIGHT` down to 1."""

    node: NewNode
    ranked: tuple[tuple[Host, int], ...]
    why: str

    @property
    def first(self) -> Host:
        """The best."""
        return self.ranked[0][0]


def wishes(hosts: Iterable[Host], nodes: Sequence[NewNode]) -> dict[str, Wish]:
    """Return the wishes of nodes that start together, by their names; see the module.

    Parameters
    ----------
    hosts
        All that the cluster may place them on.
    nodes
        In any order; the largest choose first, as in `structs.capacity.fits`.
    """
    room = {host.key: host for host in _comparable(tuple(hosts))}
    if len(room) < 2 or not _fit(room, nodes):
        return {}
    n_ps = sum(node.role is Role.PS for node in nodes)
    by_node: dict[str, Wish] = {}
    anywhere: list[NewNode] = []  # without a wish: those behind them must leave room for them
    left = sorted(nodes, key=lambda n: (-_size(n, room.values()), n.node))
    while left:
        node = left.pop(0)
        scores = {host.key: _score(host, node) for host in room.values() if host.holds(node)}
        apart = node.role is Role.PS and n_ps > 1  # alike hosts or not, they are not to share one
        if not apart and max(scores.values()) - min(scores.values()) < _ALIKE:
            anywhere.append(node)
            continue
        ranked = sorted(scores, key=lambda key: (scores[key], key))
        rest = [*left, *anywhere]
        n_full = next((i for i, key in enumerate(ranked) if _fit_with(room, key, node, rest)), len(ranked))
        if n_full == len(ranked):
            anywhere.append(node)
            continue
        roomy = ranked[n_full:]
        by_node[node.node] = _wish(node, [room[key] for key in roomy], [scores[key] for key in roomy])
        room[roomy[0]] = room[roomy[0]].with_node(node)
    return by_node


def is_stale(read_s: float, now_s: float, every_s: float) -> bool:
    """Whether loads that are read every so many seconds are too old to place nodes by."""
    return now_s > read_s + STALE_AFTER * every_s


def _score(host: Host, node: NewNode) -> float:
    apart = APART * host.n_ps * (node.role is Role.PS)
    return host.load_with(node) + apart + AVOIDED * (host.key in dict(node.avoid))


def _comparable(hosts: tuple[Host, ...]) -> tuple[Host, ...]:
    """Return hosts without their use where it is not measured on all."""
    if all(host.used is not None for host in hosts):
        return hosts
    return tuple(replace(host, used=None) for host in hosts)


def _fit_with(room: Mapping[str, Host], key: str, node: NewNode, rest: Iterable[NewNode]) -> bool:
    """Whether the others still fit with a node on a host."""
    return _fit({**room, key: room[key].with_node(node)}, rest)


def _fit(room: Mapping[str, Host], nodes: Iterable[NewNode]) -> bool:
    free = [(host.free.cpu, int(host.free.memory_mib)) for host in room.values()]
    shapes = (NodeShape(cpu, mib) for cpu, mib in sorted(free, reverse=True))
    return fits(Capacity(tuple(shapes)), [Need(node.cpu, node.memory_mib) for node in nodes])


def _size(node: NewNode, hosts: Iterable[Host]) -> float:
    has = total(host.has for host in hosts)
    return max(_share(node.cpu, has.cpu), _share(node.memory_mib, has.memory_mib))


def _wish(node: NewNode, hosts: Sequence[Host], scores: Sequence[float]) -> Wish:
    beta = host_weights(scores)
    weights = [round(MOST_WEIGHT * float(weight / beta[0])) for weight in beta]
    ranked = tuple((host, weight) for host, weight in zip(hosts, weights, strict=True) if weight >= 1)
    return Wish(node, ranked, _why(node, hosts))


def _why(node: NewNode, hosts: Sequence[Host]) -> str:
    best, *others = hosts
    load = f"load {percent(best.load_with(node))} with it"
    if not others:
        return f"no other host is better and can hold it ({load})"
    loads = sorted(host.load_with(node) for host in others)
    low, high = percent(loads[0]), percent(loads[-1])
    span = low if low == high else f"{low} to {high}"
    reasons = [f"{load} against {span} on {len(others)} other{'s' * (len(others) > 1)} that can hold it"]
    if node.role is Role.PS and best.n_ps < max(host.n_ps for host in others):
        reasons.append(f"{'no' if not best.n_ps else 'fewer'} other parameter servers of the job are there")
    slow = dict(node.avoid)
    reasons += [f"{slow[h.key]} is too slow on {h.name}" for h in others if h.key in slow]
    return "; ".join(reasons)


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float(part > 0)
