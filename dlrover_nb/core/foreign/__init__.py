"""Jobs of programs that are not ours: who is to run, how they find each other, and what they tell.

Nothing here does input or output: `ForeignMaster` decides, `core.session.foreign` carries out.
"""

from dlrover_nb.core.foreign.environment import Member, environment
from dlrover_nb.core.foreign.master import ForeignMaster
from dlrover_nb.core.foreign.operated import Operated, OperatedMaster
from dlrover_nb.core.foreign.orders import ForeignOrder, Gather
from dlrover_nb.core.foreign.program import BEGINS, program
from dlrover_nb.core.foreign.record import ForeignRecord
from dlrover_nb.core.foreign.state import planned
from dlrover_nb.core.foreign.steplog import StepLog

__all__ = [
    "BEGINS",
    "ForeignMaster",
    "ForeignOrder",
    "ForeignRecord",
    "Gather",
    "Member",
    "Operated",
    "OperatedMaster",
    "StepLog",
    "environment",
    "planned",
    "program",
]
