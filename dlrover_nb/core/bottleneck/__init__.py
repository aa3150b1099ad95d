"""What keeps a job from using its cores, and what to change: NEARCHUS, without a model of the job.

`use` holds the measurements of nodes, `diagnosis` names the bottleneck with its numbers, `remedies` says what
to change and when to stop, `remedy_plans` applies that to a plan, and `node_moves` to single nodes; `search`
puts them together.

Notes
-----
NEARCHUS (Tariq et al.) rests on one finding: the training speed of a job follows the cores that its nodes
use, whatever their number and size. So it raises what is used, step by step, and needs neither a fit nor a
history. The capacity of a link is given by the job file, or measured by probes of workers, and
checked against what is carried.
"""

from dlrover_nb.core.bottleneck.diagnosis import Bottleneck, Diagnosis, diagnose
from dlrover_nb.core.bottleneck.node_moves import node_moves
from dlrover_nb.core.bottleneck.remedies import Remedy, Step, fruitless, wanted
from dlrover_nb.core.bottleneck.remedy_plans import fixed_roles, remedy_between, start_plan, with_remedy
from dlrover_nb.core.bottleneck.search import NextPlan, has_returned, next_plan, steps, way_back
from dlrover_nb.core.bottleneck.use import JobUse, NodeUse, PlanUse, is_stable

__all__ = [
    "Bottleneck",
    "Diagnosis",
    "JobUse",
    "NextPlan",
    "NodeUse",
    "PlanUse",
    "Remedy",
    "Step",
    "diagnose",
    "fixed_roles",
    "fruitless",
    "has_returned",
    "is_stable",
    "next_plan",
    "node_moves",
    "remedy_between",
    "start_plan",
    "steps",
    "wanted",
    "way_back",
    "with_remedy",
]
