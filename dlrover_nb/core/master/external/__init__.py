"""External jobs: their programs, rendezvous, and reports.

Nothing here does input or output: `ExternalMaster` decides, `core.driver` carries out its orders.
"""

from dlrover_nb.core.master.external.job.external_record import ExternalRecord
from dlrover_nb.core.master.external.job.step_log import StepLog
from dlrover_nb.core.master.external.launch.pod_script import BEGINS, program
from dlrover_nb.core.master.external.launch.rendezvous import Member, environment
from dlrover_nb.core.master.external.master import ExternalMaster
from dlrover_nb.core.master.external.operator_managed_master import OperatorManagedJob, OperatorManagedMaster
from dlrover_nb.core.master.external.orders import ExternalAction, ExternalOrder, SendAnswer, SendEnvironment
from dlrover_nb.core.master.external.submitted import NO_FEATURES, checked, planned

__all__ = [
    "BEGINS",
    "NO_FEATURES",
    "ExternalAction",
    "ExternalMaster",
    "ExternalOrder",
    "ExternalRecord",
    "Member",
    "OperatorManagedJob",
    "OperatorManagedMaster",
    "SendAnswer",
    "SendEnvironment",
    "StepLog",
    "checked",
    "environment",
    "planned",
    "program",
]
