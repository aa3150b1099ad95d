"""What the nodes of a job use: the last reports of the present plan, and the cores that earlier plans used.

Kept are numbers, as a snapshot holds them and a large job has hundreds of nodes: the last `n_network` reports
of each node of the plan, and one figure of each of the last plans. No report says that a node was lost; where
more nodes report than a plan has, the one that was silent for longest is dropped (as in `last_reports`).

A link's capacity is what the job file says, else the most that a probe of any worker carried. A probe may be
far too low: one that ran under a CPU quota, or beside other programs, measured their waits. So real traffic
has the last word. Where a PS carried a little more than a probe, that is the capacity; where it carried far
more than was said or measured, that number was wrong, and the capacity is unknown until a better probe.
Workers do not count here: what they share with a PS in memory is in their figures, and crosses no link.
Rejected: to take what was carried for the capacity. A PS that always carries the same would be at its own
limit by definition, and its network full.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from statistics import fmean
from typing import TYPE_CHECKING

from dlrover_nb.core.bottleneck import JobUse, NodeUse, PlanUse
from dlrover_nb.core.bottleneck.use import bytes_per_s
from dlrover_nb.core.structs.job.tuning import Nearchus
from dlrover_nb.core.structs.plan.resources import Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dlrover_nb.core.structs.decisions.actions import SetSize
    from dlrover_nb.core.structs.plan.resources import ResourcePlan
    from dlrover_nb.core.structs.training.samples import NodeSample

N_PLAN = 64  # earlier plans that are kept
SAID, PROBED = "link_gbit_per_s of the job", "the most that a worker's probe carried"
BYTES_PER_GBIT = 1e9 / 8


class _Reports:
    """The last reports of one node."""

    def __init__(self, role: Role, tuning: Nearchus) -> None:
        self._n_stable = tuning.n_stable
        self.role, self.heard_s, self.longest_s = role, 0.0, 0.0
        self.cores: deque[float] = deque(maxlen=tuning.n_network)
        self.bytes_per_s: deque[float] = deque(maxlen=tuning.n_network)
        self.gpu_busy: deque[float] = deque(maxlen=tuning.n_network)

    @property
    def carried(self) -> float:
        """Bytes per second of its link in its last reports together; 0 before there are enough.

        A message counts in the moment in which it is handed over, so that a single report may seem to have
        carried more than the link can.
        """
        last = tuple(islice(reversed(self.bytes_per_s), self._n_stable))
        return fmean(last) if len(last) == self._n_stable else 0.0


class UseLog:
    """Collects what nodes use.

    Parameters
    ----------
    settle_s
        Time after a change of plan that is left out.
    link_gbit_per_s
        Capacity of a node's link; None: the most that a worker measured, if any did.
    tuning
        Parameters of NEARCHUS; None: the paper's.
    """

    def __init__(
        self, settle_s: float, link_gbit_per_s: float | None, tuning: Nearchus | None = None
    ) -> None:
        self._settle_s, self._tuning = settle_s, tuning or Nearchus()
        self._given, self._measured = link_gbit_per_s, 0.0
        self._carried = 0.0  # bytes per second, the most of any PS so far
        self._from_s = 0.0
        self._plan: ResourcePlan | None = None
        self._nodes: dict[str, _Reports] = {}
        self._own: dict[str, SetSize] = {}  # of nodes that do not have their role's size
        self._kept: set[str] = set()
        self._earlier: deque[PlanUse] = deque(maxlen=N_PLAN)

    def restart(self, plan: ResourcePlan | None, at_s: float) -> None:
        """Restart with the plan that runs from `at_s` on; after a pause of the same plan its reports stay."""
        self._from_s = at_s + self._settle_s
        if plan is None or plan == self._plan:
            return
        before = self.use
        if before is not None and before.is_complete():
            self._earlier.append(PlanUse(before.plan, before.cores()))
        self._plan, self._nodes, self._kept = plan, {}, set()

    def resize(self, sizes: Iterable[SetSize], at_s: float) -> None:
        """Take the sizes of all nodes that do not have their role's; what others used before is left out."""
        before, self._own = self._own, {each.node: each for each in sizes}
        if before != self._own:
            self._from_s = at_s + self._settle_s
            self._nodes = {name: _Reports(each.role, self._tuning) for name, each in self._nodes.items()}

    def keep(self, node: str) -> None:
        """Note that a node keeps its size until the plan changes."""
        self._kept.add(node)

    def add(self, sample: NodeSample, at_s: float) -> None:
        """Add a report of a node of the present plan.

        The last report before a change may span a moment in which nothing was finished. It is left out: a
        plan would seem to have used less than it did, and the change after it to be an improvement.
        """
        self._measured = max(self._measured, sample.link_gbit_per_s)
        if self._plan is None or at_s - sample.window_s < self._from_s:
            return
        if sample.node not in self._nodes:
            self._make_place(sample.role, self._plan.role(sample.role).count)
            self._nodes[sample.node] = _Reports(sample.role, self._tuning)
        node = self._nodes[sample.node]
        node.heard_s, node.longest_s = at_s, max(node.longest_s, sample.window_s)
        if sample.window_s < node.longest_s / 2:
            return
        node.cores.append(sample.cpu_cores)
        node.bytes_per_s.append(bytes_per_s(sample))
        if node.role is Role.PS:
            self._carried = max(self._carried, node.carried)
        if sample.gpu_busy is not None:
            node.gpu_busy.append(sample.gpu_busy)

    def _make_place(self, role: Role, n_node: int) -> None:
        """Drop the node of a role that was silent for longest, where all places of the plan are taken."""
        own = [name for name, each in self._nodes.items() if each.role is role]
        if len(own) >= n_node:
            del self._nodes[min(own, key=lambda name: self._nodes[name].heard_s)]

    @property
    def use(self) -> JobUse | None:
        """What the job uses now; None before its first plan is in place."""
        plan = self._plan
        if plan is None:
            return None
        nodes = tuple(
            NodeUse(
                name,
                r.role,
                own.cpu,
                tuple(r.cores),
                tuple(r.bytes_per_s),
                own.memory_mib,
                self._tuning,
                tuple(r.gpu_busy),
            )
            for name, r in self._nodes.items()
            for own in (self._own.get(name) or plan.role(r.role),)
        )
        return JobUse(plan, nodes, tuple(self._earlier), *self._link(), frozenset(self._kept), self._tuning)

    def _link(self) -> tuple[float | None, str]:
        """Return the capacity of a node's link in bytes per second, and how it is known or why it is not."""
        source, gbit_per_s = (SAID, self._given) if self._given else (PROBED, self._measured)
        if not gbit_per_s:
            return None, ""
        link = gbit_per_s * BYTES_PER_GBIT
        if self._tuning.link_share * self._carried <= link:
            return link if self._given else max(link, self._carried), source
        carried = self._carried / BYTES_PER_GBIT
        return None, f"a PS carried {carried:.2g} Gbit/s, more than {source} ({gbit_per_s:.2g} Gbit/s)"
