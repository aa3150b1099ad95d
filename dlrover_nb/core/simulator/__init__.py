"""Many jobs on a simulated cluster: the same events as real jobs emit, on a virtual clock.

It contains no controller and no planner: it executes instructions and emits events. Every view of it is
marked as simulated.
"""

from dlrover_nb.core.simulator.cluster import SimCluster
from dlrover_nb.core.simulator.description import (
    GrowthLaw,
    MemoryGrowth,
    SimulatedJob,
    Transition,
    WorldSettings,
)
from dlrover_nb.core.simulator.faults import CALM, Faults, Pending
from dlrover_nb.core.simulator.one_job.life import SimJob
from dlrover_nb.core.simulator.truth import SpeedTruth, TermsTruth
from dlrover_nb.core.simulator.world import SimulatedWorld

__all__ = [
    "CALM",
    "Faults",
    "GrowthLaw",
    "MemoryGrowth",
    "Pending",
    "SimCluster",
    "SimJob",
    "SimulatedJob",
    "SimulatedWorld",
    "SpeedTruth",
    "TermsTruth",
    "Transition",
    "WorldSettings",
]
