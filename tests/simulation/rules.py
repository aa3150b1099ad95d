"""Rules of a cluster about the nodes of a job, which come and go: sizes that it refuses, and a quota of all together.

A size is refused as a LimitRange does, which names its limit, or as an admission policy does, which says anything. A node
that the quota has no room for waits, and is asked for again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from dlrover_nb.core.backends.kubernetes.nodes.refused_sizes import RefusedSizes
from dlrover_nb.core.driver.backend import NodeExited
from dlrover_nb.core.structs.plan.capacity import NodeLimits

if TYPE_CHECKING:
    from dlrover_nb.core.structs.plan.capacity import Capacity, Need
    from dlrover_nb.core.structs.wire.node_config import NodeConfig


@dataclass(frozen=True, slots=True)
class SizeRule:
    """The most that one node may have.

    Parameters
    ----------
    most_cpu, most_memory_mib
        None: any.
    is_stated
        Whether a refusal names the limit.
    """

    most_cpu: float | None = None
    most_memory_mib: int | None = None
    is_stated: bool = True

    def forbids(self, need: Need) -> bool:
        return not NodeLimits(most_cpu=self.most_cpu, most_memory_mib=self.most_memory_mib).allow(need)

    def words(self, need: Need) -> str:
        """Return what the API server says of a pod of this size."""
        if not self.is_stated:
            return 'admission webhook "sizes.team" denied the request: ask the platform team'
        cpu, mib = need
        parts = []
        if self.most_cpu is not None and cpu > self.most_cpu:
            parts.append(
                f"maximum cpu usage per Container is {self.most_cpu * 1000:.0f}m, but limit is {cpu * 1000:.0f}m"
            )
        if self.most_memory_mib is not None and mib > self.most_memory_mib:
            parts.append(
                f"maximum memory usage per Container is {self.most_memory_mib}Mi, but limit is {mib}Mi"
            )
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A node that was refused: when, of which size, by which rule, and the largest sizes made before."""

    elapsed_s: float
    need: Need
    rule: SizeRule
    most_made: Need | None  # None: no node was made before

    def forbids(self, need: Need) -> bool:
        """Whether it is known by this refusal that a node of this size is refused too."""
        if self.rule.is_stated:
            return self.rule.forbids(need)
        if self.most_made is None:
            return False
        return any(
            refused > made and size >= refused
            for refused, made, size in zip(self.need, self.most_made, need, strict=True)
        )


class Rules:
    """The rules of one cluster.

    Attributes
    ----------
    n_found
        Nodes that waited for the quota and were made.
    """

    def __init__(self) -> None:
        self.n_found = 0
        self._size, self._size_until_s = SizeRule(), 0.0
        self._quota_cpu, self._quota_until_s, self._read_s = math.inf, 0.0, 0.0

    def limit_sizes(self, rule: SizeRule, until_s: float) -> None:
        self._size, self._size_until_s = rule, until_s

    def limit_all(self, cpu: float, until_s: float, *, read_s: float) -> None:
        """Let nodes have so many cores together, of which the job's backend reads at a time."""
        self._quota_cpu, self._quota_until_s, self._read_s = cpu, until_s, read_s

    def bind(self, elapsed_s: float) -> bool:
        """Whether there is a rule now."""
        return elapsed_s < max(self._size_until_s, self._quota_until_s)

    def of_sizes(self, elapsed_s: float) -> SizeRule:
        return self._size if elapsed_s < self._size_until_s else SizeRule()

    def quota_cpu(self, elapsed_s: float) -> float:
        return self._quota_cpu if elapsed_s < self._quota_until_s else math.inf

    def read_quota_cpu(self, elapsed_s: float) -> float:
        """Return the quota as far as backends have read of it."""
        return self.quota_cpu(elapsed_s) if elapsed_s >= self._read_s else math.inf


@dataclass
class Admission:
    """What a cluster answers one backend, and what that learns of it, as the backend of pods does."""

    rules: Rules
    refusals: list[Refusal] = field(default_factory=list)
    _learnt: RefusedSizes = field(default_factory=RefusedSizes)
    _made: set[Need] = field(default_factory=set)

    def refused(self, config: NodeConfig, elapsed_s: float) -> NodeExited | None:
        """Return how the cluster refuses a node; None: its size is allowed."""
        need, rule = (config.cpu, config.memory_mib), self.rules.of_sizes(elapsed_s)
        if not rule.forbids(need):
            return None
        made = self._made and (max(cpu for cpu, _ in self._made), max(mib for _, mib in self._made))
        self.refusals.append(Refusal(elapsed_s, need, rule, made or None))
        limits = self._learnt.refused(need, why := rule.words(need), elapsed_s)
        return NodeExited(config.node, why, retryable=False, refused=limits)

    def made(self, need: Need) -> None:
        """Note a node that was made."""
        self._made.add(need)
        self._learnt.made(need)

    def known(self, capacity: Capacity, elapsed_s: float) -> Capacity:
        """Return the capacity of a cluster within the rules that are known."""
        quota_cpu = self.rules.read_quota_cpu(elapsed_s)
        shapes = tuple(replace(shape, cpu=min(shape.cpu, quota_cpu)) for shape in capacity.shapes)
        return replace(capacity, shapes=shapes, node_limits=self._learnt.limits(elapsed_s))

    def over_quota(self, cpu: float, used_cpu: float, elapsed_s: float) -> str:
        """Return what the API server says of a pod that the quota has no room for; empty: it has."""
        limit_cpu = self.rules.quota_cpu(elapsed_s)
        if used_cpu + cpu <= limit_cpu + 1e-6:
            return ""
        asked, used, limit = (f"limits.cpu={each * 1000:.0f}m" for each in (cpu, used_cpu, limit_cpu))
        return f"exceeded quota: team, requested: {asked}, used: {used}, limited: {limit}"
