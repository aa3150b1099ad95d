"""From measurements to plans: pure composition of model, space, prices and memory.

`situation` is the input of planning; `analysis` fits the model and computes the curves and the front, by what
`predictions` says of each plan; `advising` decides what to propose; `protect` gives nodes the memory that
they need, `right_size` takes back what none of them will use; `policies` compose them.
"""

from dlrover_nb.core.planner.advising.advice import Advice, Axes, Limits, PlannerSettings, axes_key
from dlrover_nb.core.planner.advising.explain import AdviceContext, binding, evidence, marginals, runner_up
from dlrover_nb.core.planner.advising.improvement import advise, probe
from dlrover_nb.core.planner.advising.sensitivity import break_even_of, break_even_of_staying
from dlrover_nb.core.planner.analysis import Analysis, analyse, fitted
from dlrover_nb.core.planner.availability.feasibility import check_room, has_room
from dlrover_nb.core.planner.bid import Bid, bid
from dlrover_nb.core.planner.deadline import rescues_deadline
from dlrover_nb.core.planner.policies import POLICIES
from dlrover_nb.core.planner.policies.nearchus import diagnosis_of
from dlrover_nb.core.planner.policies.policy import Policy, PolicyContext
from dlrover_nb.core.planner.policies.stages import (
    Start,
    auto_scale,
    give_way,
    post_scale,
    protect_why,
    warm_start,
)
from dlrover_nb.core.planner.predictions.host import weight_of
from dlrover_nb.core.planner.predictions.transitions import transition_kind, transition_s
from dlrover_nb.core.planner.protect import Frame, MemoryNeed, protected
from dlrover_nb.core.planner.right_size import lacks_memory
from dlrover_nb.core.planner.situation import Situation
from dlrover_nb.core.structs.job.job import DEFAULT_POLICY

__all__ = [
    "DEFAULT_POLICY",
    "POLICIES",
    "Advice",
    "AdviceContext",
    "Analysis",
    "Axes",
    "Bid",
    "Frame",
    "Limits",
    "MemoryNeed",
    "PlannerSettings",
    "Policy",
    "PolicyContext",
    "Situation",
    "Start",
    "advise",
    "analyse",
    "auto_scale",
    "axes_key",
    "bid",
    "binding",
    "break_even_of",
    "break_even_of_staying",
    "check_room",
    "diagnosis_of",
    "evidence",
    "fitted",
    "give_way",
    "has_room",
    "lacks_memory",
    "marginals",
    "post_scale",
    "probe",
    "protect_why",
    "protected",
    "rescues_deadline",
    "runner_up",
    "transition_kind",
    "transition_s",
    "warm_start",
    "weight_of",
]
