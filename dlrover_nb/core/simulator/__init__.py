"""Many jobs on a simulated cluster: the same events as real jobs tell, on a virtual clock.

It knows no controller and no planner: it obeys instructions and tells events. Whoever shows anything of it
says that it is simulated.
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
from dlrover_nb.core.simulator.job import SimJob
from dlrover_nb.core.simulator.truth import SpeedTruth, TableTruth, TermsTruth, read_tables
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
    "TableTruth",
    "TermsTruth",
    "Transition",
    "WorldSettings",
    "read_tables",
]
