"""From measurements to plans: pure composition of model, space, prices and memory.

`situation` is the input of planning; `analysis` fits the model and computes the curves and the front, by what
`predictions` says of each plan; `advising` decides what to propose; `protect` gives nodes the memory that
they need, `plan_memory` takes back what none of them will use; `policies` compose them.
"""

from dlrover_nb.core.planner.advising.advice import Advice, PlannerSettings
from dlrover_nb.core.planner.analysis import Analysis, analyse
from dlrover_nb.core.planner.policies.policy import PolicyContext
from dlrover_nb.core.planner.situation import Situation

__all__ = ["Advice", "Analysis", "PlannerSettings", "PolicyContext", "Situation", "analyse"]
