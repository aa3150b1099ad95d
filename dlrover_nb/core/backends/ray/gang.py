"""A job's minimal set of nodes, placed by Ray as a whole or not at all.

Two jobs that each hold half of their minimum and wait for the other half would deadlock. So all parameter
servers of the first plan and one worker are one placement group: Ray finds room for all of them together, and
reserves none before. Further nodes of a job start one at a time, and the job trains without them too.

A replacement node takes the bundle of its predecessor. Ray can release a group only as a whole: it is removed
when the last of its nodes is gone.
"""

from __future__ import annotations

import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray.exceptions import RayError
from ray.util import get_placement_group, placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from dlrover_nb.core.codec import from_json, to_json
from dlrover_nb.core.errors import WireError

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from dlrover_nb.core.structs.capacity import Need
    from dlrover_nb.core.structs.resources import ResourcePlan

logger = logging.getLogger(__name__)

MIB = 1 << 20
_FILE = "gang.json"


@dataclass(frozen=True, slots=True)
class _Seats:
    """The size of each bundle, and the nodes that hold one."""

    needs: tuple[tuple[float, int], ...]
    holders: tuple[tuple[int, str], ...]


class Gang:
    """The placement group of one job; Ray is not called before the first `seat`.

    Parameters
    ----------
    job
        The job's name.
    folder
        Its run folder, where a restarted master finds which node holds which bundle.
    """

    def __init__(self, job: str, folder: Path) -> None:
        self._name, self._path = _name(job), folder / _FILE
        self._needs: tuple[Need, ...] = ()
        self._holders: dict[int, str] = {}
        self._group: Any = None

    @property
    def waits(self) -> bool:
        """Whether Ray has not placed it yet."""
        if self._group is None:
            return False
        return bool(placement_group_table(self._group).get("state") in {"PENDING", "RESCHEDULING"})

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that hold a bundle."""
        return frozenset(self._holders.values())

    def held(self) -> list[tuple[str, Need]]:
        """Return the machine and the size of each placed bundle."""
        if self._group is None:
            return []
        machines = placement_group_table(self._group).get("bundles_to_node_id", {})
        return [(str(machines.get(i, "")), need) for i, need in enumerate(self._needs)]

    def open(self, plan: ResourcePlan) -> None:
        """Request a group for all PS of a plan and one worker."""
        worker, ps = ((role.cpu, role.memory_mib) for role in (plan.worker, plan.ps))
        self._needs = (*[ps] * plan.ps.count, worker)
        bundles = [{"CPU": cpu, "memory": float(mib * MIB)} for cpu, mib in self._needs]
        self._group = placement_group(bundles, strategy="PACK", name=self._name, lifetime="detached")

    def adopt(self, nodes: Collection[str]) -> None:
        """Adopt the group of an earlier master, with those of its nodes that are alive."""
        with contextlib.suppress(OSError, WireError, ValueError):  # there is none
            seats = from_json(self._path.read_bytes(), _Seats)
            self._group = get_placement_group(self._name)
            self._needs = seats.needs
            self._holders = {bundle: node for bundle, node in seats.holders if node in nodes}

    def seat(self, node: str, need: Need) -> PlacementGroupSchedulingStrategy | None:
        """Give a node a free bundle of its size; None when there is none."""
        free = (i for i, own in enumerate(self._needs) if own == need and i not in self._holders)
        if self._group is None or (bundle := next(free, None)) is None:
            return None
        self._holders[bundle] = node
        self._keep()
        return PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)

    def leave(self, node: str) -> None:
        """Free the bundle of a node that is gone; release the group with the last one."""
        if node not in self.nodes:
            return
        self._holders = {bundle: holder for bundle, holder in self._holders.items() if holder != node}
        if self._holders:
            self._keep()
        else:
            self.close()

    def close(self) -> None:
        """Release the group."""
        group, self._group = self._group, None
        self._needs, self._holders = (), {}
        self._path.unlink(missing_ok=True)
        if group is not None:
            with contextlib.suppress(RayError, ConnectionError):
                remove_placement_group(group)

    def _keep(self) -> None:
        try:
            self._path.write_bytes(to_json(_Seats(self._needs, tuple(self._holders.items()))))
        except OSError as error:
            logger.warning("%s cannot be kept for a master that comes back: %s", self._name, error)


def remove_gang(job: str) -> None:
    """Remove the group that a job left behind, if there is one."""
    with contextlib.suppress(ValueError, RayError):
        remove_placement_group(get_placement_group(_name(job)))


def _name(job: str) -> str:
    return f"{job}/gang"
