"""Machines and their free capacity: 1,000 machines as two arrays.

A node goes to the first machine with enough capacity, groups of nodes largest first: first fit decreasing,
the test of `structs.capacity.fits`, so a plan that fits there can be placed here. A group is placed as a
whole or not at all: half a PS group trains nothing and only holds capacity.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dlrover_nb.core.structs import _check
from dlrover_nb.core.structs.plan.capacity import Capacity, NodeShape, in_steps
from dlrover_nb.core.structs.plan.resources import CPU_STEP, Need

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray


COARSE = 4  # of many machines, free capacity is reported in quarters of one, rounded down
FEW = 8  # machines whose free capacity is reported exactly


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a node: the number of its machine and what it holds there."""

    machine: int
    cpu_steps: int
    memory_mib: int


class SimCluster:
    """Machines in groups of one shape each.

    Parameters
    ----------
    shapes
        Groups of machines, at least one machine in all.
    """

    def __init__(self, shapes: Sequence[NodeShape]) -> None:
        _check.at_least("number of machines", sum(s.count for s in shapes), 1)
        for shape in shapes:
            _check.above_zero("cpu of a machine", shape.cpu)
            _check.above_zero("memory_mib of a machine", shape.memory_mib)
        counts = [s.count for s in shapes]
        self._cpu = np.repeat([in_steps(s.cpu) for s in shapes], counts).astype(np.int64)
        self._mib = np.repeat([s.memory_mib for s in shapes], counts).astype(np.int64)
        self.free_cpu = self._cpu.copy()
        self.free_mib = self._mib.copy()
        self._whole = Capacity(tuple(shapes))
        self.n_place = self.n_release = 0  # counts so far, to detect changes

    def __len__(self) -> int:
        return len(self._cpu)

    @property
    def n_change(self) -> int:
        """Placements and releases so far."""
        return self.n_place + self.n_release

    @property
    def capacity(self) -> Capacity:
        """All machines, as if empty."""
        return self._whole

    @property
    def machines(self) -> tuple[Need, ...]:
        """Cores and MiB of each machine, as if empty, in the order of `Place.machine`."""
        whole = zip(self._cpu.tolist(), self._mib.tolist(), strict=True)
        return tuple(Need(steps * CPU_STEP, mib) for steps, mib in whole)

    @property
    def used_cpu(self) -> float:
        """Cores that nodes hold."""
        return float((self._cpu - self.free_cpu).sum()) * CPU_STEP

    def place(self, needs: Sequence[Need]) -> list[Place] | None:
        """Place all nodes of these needs, in their order; None, without effect, when one does not fit."""
        places = self._place_all(needs)
        self.n_place += len(places or ())
        return places

    def has_room(self, needs: Sequence[Need], *, instead_of: Iterable[Place]) -> bool:
        """Whether all nodes of these needs could be placed once others have left."""
        leaving = tuple(instead_of)
        self._give_back(leaving)
        places = self._place_all(needs)
        self._give_back(places or ())
        for place in leaving:
            self._take(place)
        return places is not None

    def _place_all(self, needs: Sequence[Need]) -> list[Place] | None:
        places: list[Place | None] = [None] * len(needs)
        nodes = [(in_steps(need.cpu), need.memory_mib) for need in needs]
        total_cpu, total_mib = self._cpu.sum(), self._mib.sum()
        order = sorted(
            range(len(nodes)),
            key=lambda i: max(nodes[i][0] / total_cpu, nodes[i][1] / total_mib),
            reverse=True,
        )
        for i in order:
            places[i] = self._place_one(*nodes[i])
            if places[i] is None:
                self._give_back(p for p in places if p is not None)
                return None
        return [p for p in places if p is not None]

    def _place_one(self, cpu: int, mib: int) -> Place | None:
        has_room = (self.free_cpu >= cpu) & (self.free_mib >= mib)
        machine = int(has_room.argmax())
        if not has_room[machine]:
            return None
        place = Place(machine, cpu, mib)
        self._take(place)
        return place

    def _take(self, place: Place) -> None:
        self.free_cpu[place.machine] -= place.cpu_steps
        self.free_mib[place.machine] -= place.memory_mib

    def release(self, places: Iterable[Place]) -> None:
        """Release the capacity of nodes."""
        self.n_release += self._give_back(places)

    def _give_back(self, places: Iterable[Place]) -> int:
        given = list(places)
        for place in given:
            self.free_cpu[place.machine] += place.cpu_steps
            self.free_mib[place.machine] += place.memory_mib
        return len(given)

    def room_for(self, own: Iterable[Place], n_node: int) -> Capacity:
        """Return the capacity in reach of a job: its own nodes and what is free.

        Parameters
        ----------
        own
            Places of its nodes.
        n_node
            The most nodes it could have; more machines of one shape are not counted.

        Notes
        -----
        Free capacity of many machines is rounded down to quarters of one, so that there are few shapes and
        small changes are not reported; what the job itself holds counts exactly.
        """
        own_rooms: dict[int, list[int]] = {}
        for place in own:
            room = own_rooms.setdefault(place.machine, [0, 0])
            room[0] += place.cpu_steps
            room[1] += place.memory_mib
        cpu, mib = self._coarse(self.free_cpu, self._cpu), self._coarse(self.free_mib, self._mib)
        for machine, (own_cpu, own_mib) in own_rooms.items():
            cpu[machine] += own_cpu
            mib[machine] += own_mib
        rooms = Counter(zip(cpu.tolist(), mib.tolist(), strict=True))
        shapes = (
            NodeShape(c * CPU_STEP, m, min(count, n_node))
            for (c, m), count in rooms.items()
            if c > 0 and m > 0
        )
        return Capacity(tuple(sorted(shapes, key=lambda s: (s.cpu, s.memory_mib), reverse=True)))

    def _coarse(self, free: NDArray[np.int64], whole: NDArray[np.int64]) -> NDArray[np.int64]:
        if len(self) <= FEW:
            return free.copy()
        step = np.maximum(whole // COARSE, 1)
        return free // step * step
